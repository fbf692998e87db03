"""The simulated twins of the four effects: deterministic, seeded, and able to fail."""
