"""The consumer: fetching ahead, and returning records. Positions and the assignment are in group/subscription.py."""
