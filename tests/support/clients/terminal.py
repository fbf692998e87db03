"""Runs the command line as a person or a program does, against a broker in this process; and makes transactions to
look at.
"""

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
        """Run a command and return its standard output. Sets `code`, its exit code, and `err`, its error stream.
        Raises what the command raises.
        """
        words = line.split()
        result = CliRunner(env={"FENCEPOST_BOOTSTRAP": self.bootstrap}).invoke(main, words, input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.code, self.err = result.exit_code, result.stderr
        return result.stdout

    def objects(self, line: str) -> list[dict[str, Any]]:
        """Run a command with -o json and return the objects that it prints."""
        out = self.run(f"{line} -o json")
        assert self.code == 0, self.err
        return [json.loads(each) for each in out.splitlines()]

    def refused(self, line: str) -> tuple[int, str, str]:
        """Run a command that fails, and return its exit code, cause and hint."""
        out = self.run(line)
        assert self.code != 0, out
        cause, hint = self.err.splitlines()
        assert (cause[:7], hint[:6]) == ("error: ", "hint: ")
        return self.code, cause[7:], hint[6:]

    def open_transaction(self, transactional_id: str, topic: str, *values: str) -> Producer:
        """Begin a transaction of librdkafka, and write a record for each value to partition 0 in it. All are
        acknowledged when this returns.
        """
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id})
        producer.init_transactions(10)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode(), partition=0)
        assert producer.flush(10) == 0
        return producer

    def hold_offsets(self, transactional_id: str, group: str, topic: str, offset: int) -> Producer:
        """Begin a transaction of librdkafka that commits an offset of partition 0 for a group, and leave it open."""
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
        """Write one record with a key and a header of the same text."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(topic, value.encode(), key.encode(), 0, headers=[(key, value.encode())])
        assert producer.flush(10) == 0
