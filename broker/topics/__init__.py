"""Topics and partitions, the checks between a handler and a log, and the catalogue that stores topics and settings."""
