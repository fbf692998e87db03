"""A client of `fencepost demo` that writes in a transaction, prints "written" and waits to be killed."""

import sys
import time

WAIT_S = 60


def main(bootstrap: str, transactional_id: str, *topics: str) -> None:
    """Write three records to partition 0 of each topic, and never commit them."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for topic in topics:
        for number in range(3):
            producer.produce(topic, f"never committed {number}", partition=0)
    producer.flush(WAIT_S)
    print("written", flush=True)
    time.sleep(WAIT_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
