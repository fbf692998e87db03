"""kill -9 of broker and named producer, as real processes: each record of the source is there once, in order.

The client is a program that reads its source from the beginning, or from the highest sequence, and is killed at any
moment; so is the broker. The last life sends the rest.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest
from broker_process import broker_process

PARTITIONS, EACH = 3, 1_500
KILLS = int(os.environ.get("ROUNDS", "3"))

CLIENT = f"""
import asyncio, sys
import fencepost as fp

async def main(bootstrap, from_the_beginning):
    async with fp.Producer(bootstrap, name="source", max_batch_size=2_000, request_timeout_ms=2_000) as producer:
        done = {{}} if from_the_beginning else await producer.last_sequences("out")
        print("begun", flush=True)
        for sequence in range({EACH}):
            for partition in range({PARTITIONS}):
                if sequence > done.get(partition, -1):
                    await producer.send("out", b"%d" % sequence, partition=partition, sequence=sequence)
            if sequence % 50 == 0:
                await asyncio.sleep(0.02)
        await producer.flush()
        for partition in range({PARTITIONS}):
            assert (await producer.last_sequences("out"))[partition] == {EACH - 1}
    print("all written", flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2] == "beginning"))
"""


def client(bootstrap: str, how: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", CLIENT, bootstrap, how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def values(bootstrap: str, partition: int) -> list[int]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition("out", partition, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append(int(message.value()))
    consumer.close()
    return found


@pytest.mark.slow
def test_records_a_named_producer_sends_again_after_each_kill_are_written_once(tmp_path):
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print("SEED", seed)
    chance = random.Random(seed)
    with broker_process(str(tmp_path / "data"), "-X", f"num.partitions={PARTITIONS}") as broker:
        for kill in range(KILLS):
            running = client(broker.bootstrap, chance.choice(["beginning", "highest"]))
            time.sleep(chance.random() * 0.6)
            if kill % 2:
                broker.kill()
                broker.start()
                time.sleep(chance.random() * 0.4)
            with running:  # which closes its output, and waits for its end
                running.send_signal(signal.SIGKILL)
        last = client(broker.bootstrap, "highest")
        assert last.communicate(timeout=60)[0] == "all written\n"
        assert last.returncode == 0
        for partition in range(PARTITIONS):
            found = values(broker.bootstrap, partition)
            counts = Counter(found)
            assert [number for number in range(EACH) if counts[number] != 1] == []
            assert found == sorted(found)
