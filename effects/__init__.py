"""The only doors to the outside: Clock, Rng, Net and Disk, each with a simulated twin."""
