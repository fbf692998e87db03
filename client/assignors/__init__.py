"""The assignors: which member of a group reads which partition. Pure; results are those of Kafka's Java client."""
