"""A member of a consumer group: subscription, joining, heartbeats, commits."""
