"""The messages of the Kafka protocol, one module an area."""
