"""Simulated counterparts of the four effects, for tests: deterministic, seeded, and able to fail."""
