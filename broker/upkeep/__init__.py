"""What goes on beside requests: flushing, checkpoints, cleaning, snapshots of the coordinators."""
