"""fencepost: a message broker you install with pip, speaking the Apache Kafka wire protocol."""

__version__ = "0.1.0"
