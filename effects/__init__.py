"""The only access to the machine: Clock, Rng, Net and Disk, each with a simulated counterpart for tests."""
