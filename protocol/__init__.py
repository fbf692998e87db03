"""Bytes to values and back: the Kafka wire protocol and record batches. Every module is pure."""
