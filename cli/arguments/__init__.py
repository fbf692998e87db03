"""What people type: the options that commands share, positions in a topic, ranges of numbers."""
