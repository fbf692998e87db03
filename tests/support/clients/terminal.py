"""The command line as a person or a program calls it, against a broker in this process; and transactions to look at."""

import json
import shlex
import sys
from typing import Any

from click.testing import CliRunner
from confluent_kafka import Consumer, Producer, TopicPartition
from fencepost.cli import main
from served_broker import ServedBroker

FENCEPOST = shlex.join([sys.executable, "-m", "fencepost"])  # for a line of a shell


class Terminal:
    """Runs commands against one broker."""

    def __init__(self, broker: ServedBroker) -> None:
        self.broker = broker
        self.bootstrap = f"127.0.0.1:{broker.port}"
        self.code = 0
        self.err = ""

    def run(self, line: str, *, given: bytes | None = None) -> str:
        """Standard output. `code` is the exit code then, `err` the error stream. A traceback is an error here."""
        words = line.split()
        result = CliRunner(env={"FENCEPOST_BOOTSTRAP": self.bootstrap}).invoke(main, words, input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.code, self.err = result.exit_code, result.stderr
        return result.stdout

    def objects(self, line: str) -> list[dict[str, Any]]:
        """What the command prints with -o json."""
        out = self.run(f"{line} -o json")
        assert self.code == 0, self.err
        return [json.loads(each) for each in out.splitlines()]

    def refused(self, line: str) -> tuple[int, str, str]:
        """Exit code, cause and hint."""
        out = self.run(line)
        assert self.code != 0, out
        cause, hint = self.err.splitlines()
        assert (cause[:7], hint[:6]) == ("error: ", "hint: ")
        return self.code, cause[7:], hint[6:]

    def open_transaction(self, transactional_id: str, topic: str, *values: str) -> Producer:
        """Of librdkafka; what it wrote into partition 0 is acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode(), partition=0)
        assert producer.flush(10) == 0
        return producer

    def hold_offsets(self, transactional_id: str, group: str, topic: str, offset: int) -> Producer:
        """A transaction of librdkafka that has committed an offset of partition 0 for a group, and stays open."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(10)
        producer.begin_transaction()
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        metadata = reader.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, 10)
        reader.close()
        return producer

    def plain(self, topic: str, *values: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value.encode(), partition=0)
        assert producer.flush(10) == 0

    def keyed(self, topic: str, key: str, value: str) -> None:
        """One record with a key and a header of the same text."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(topic, value.encode(), key.encode(), 0, headers=[(key, value.encode())])
        assert producer.flush(10) == 0
