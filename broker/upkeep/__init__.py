"""Background work: flushing, checkpoints, cleaning, snapshots of the coordinators."""
