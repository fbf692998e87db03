"""`make bench-bars`: bounds that fencepost has without another broker."""
