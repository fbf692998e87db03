"""One partition's log: the tail in memory, the segments and their indexes on disk, and how it is read."""
