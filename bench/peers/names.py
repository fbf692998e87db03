"""The names of the compared servers and clients, as they are in every result. Pure."""

FSYNC, OS = "fencepost fsync", "fencepost os"
KAFKA, KAFKA_FLUSH = "Kafka", "Kafka flush"
MOCK, FLOOR = "mock", "C floor"
PLAIN_LOOP = "plain loop"
COMMITTED, UNCOMMITTED = f"{OS}, read_committed", f"{OS}, read_uncommitted"
ACKNOWLEDGED, OFFSETS = f"{OS}, acknowledged", f"{OS}, offsets"
MIRRORED, COPIED = f"{OS}, mirrored", f"{OS}, copied by the SDK"
WATCHED = f"{FSYNC}, 100 consoles"
FOLLOWED = f"{FSYNC}, followed"
STORED = "fencepost in a store, 30 ms a PUT"
STORED_IDLE, STORED_FEW, STORED_MANY = f"{STORED}, idle", f"{STORED}, 10 partitions", f"{STORED}, 1,000 partitions"
KILLED, HANDED_OVER = f"{STORED}, killed", f"{STORED}, handed over"
SDK, AIOKAFKA, CONFLUENT = "fencepost SDK", "aiokafka", "confluent-kafka"
ENDED, DECIDED = "one commit with the database", "one commit, until it is decided"
APART = "two commits without a guarantee"
INBOX, INSERTS = "inserts in an inbox", "the same inserts without"
SPARK, SPARK_JAR = "fencepost in Spark", "Kafka's jar in Spark"
EXACTLY_ONCE, AT_LEAST_ONCE = f"{SPARK}, exactly once", f"{SPARK}, at least once"

NAMES = (FSYNC, OS, KAFKA, KAFKA_FLUSH, MOCK, FLOOR)
JVMS = frozenset({KAFKA, KAFKA_FLUSH})
BROKERS = frozenset({FSYNC, OS, KAFKA, KAFKA_FLUSH})
BROKERS_AND_MOCK = BROKERS | {MOCK}  # for producers: the mock wakes no waiting consumer and hides no aborted record
