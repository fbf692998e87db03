"""A running ShareFetch, and how its answer is made."""
