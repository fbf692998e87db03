"""Loads against any Kafka broker, and the comparison with other brokers (peers) that `make bench` prints."""
