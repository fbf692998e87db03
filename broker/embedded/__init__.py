"""A broker inside somebody else's process."""
