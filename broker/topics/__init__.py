"""Which topics and partitions there are, what lies between a handler and a log, and how the catalogue lasts."""
