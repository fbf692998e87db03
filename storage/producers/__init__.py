"""What a partition remembers of its producers, and how that is written down."""
