"""One data directory: the journal, the partition logs, checkpoints, recovery. Synchronous throughout."""
