"""A worker of a share group with confluent-kafka, as a process (share_workers.py).

python share_worker.py BOOTSTRAP TOPIC GROUP
"""

import sys

from confluent_kafka import KafkaException, ShareConsumer


def main() -> None:
    """Work until it is killed."""
    bootstrap, topic, group = sys.argv[1:4]
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 50,
            "reconnect.backoff.ms": 50,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    print("begun", flush=True)
    while True:
        for message in consumer.poll(0.3):
            if message.error():
                print("error", message.error(), flush=True)
                continue
            print("did", message.value().decode(), message.delivery_count(), flush=True)
            consumer.acknowledge(message)
        try:
            refused = [error for error in consumer.commit_sync(10).values() if error is not None]
        except KafkaException as error:
            refused = [error]
        for error in refused:
            print("refused", error, flush=True)


if __name__ == "__main__":
    main()
