"""A ShareFetch while it runs, and what it answers."""
