"""A consumer's place in its group: joining, heartbeats, commits."""
