"""`make bench-bars`: fencepost's own bounds, measured side by side in one run."""
