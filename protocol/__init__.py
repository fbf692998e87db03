"""The Kafka wire protocol and record batches: bytes to values and back. Pure."""
