"""The state that a partition keeps of its producers, and how it is written to files."""
