"""Bytes to values and back: the Kafka wire protocol and record batches. Pure."""
