"""The servers of a comparison, by the names that they have in every result. Pure."""

FSYNC, OS = "fencepost fsync", "fencepost os"
KAFKA, KAFKA_FLUSH = "Kafka", "Kafka flush"
MOCK, FLOOR = "mock", "C floor"

NAMES = (FSYNC, OS, KAFKA, KAFKA_FLUSH, MOCK, FLOOR)
JVMS = frozenset({KAFKA, KAFKA_FLUSH})
BROKERS = frozenset({FSYNC, OS, KAFKA, KAFKA_FLUSH})
BROKERS_AND_MOCK = BROKERS | {MOCK}  # the mock wakes no consumer and hides no aborted record
