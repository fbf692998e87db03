"""What makes logs smaller: retention drops whole segments, compaction rewrites them."""
