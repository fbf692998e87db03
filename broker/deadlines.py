"""Deadlines, as times of the monotonic clock in ms. Pure."""

NEVER = 1 << 62
"""A deadline after every time: nothing is due."""
