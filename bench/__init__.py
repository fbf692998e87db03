"""Load against any Kafka broker, and the comparison with peers that `make bench` prints."""
