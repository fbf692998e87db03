"""Steps that prepare a scenario: they must succeed, and have no answer to compare."""

from __future__ import annotations

import time

from fencepost.protocol import apis
from fencepost.protocol.errors import ErrorCode

from .notation import BadNotation, Command
from .runner import Run
from .words import options, text

READY_SECONDS = 20.0


def topic_exists(run: Run, command: Command) -> None:
    """Perform `topic $t partitions=3 cleanup.policy=compact`: create the topic, and wait until it can be used."""
    name, *words = command.tokens
    _, settings = options(words, set())
    count = int(str(settings.pop("partitions", "1")))
    made = apis.APIS[19].request
    topic = made.Topic(
        name=run.names.text(str(name)),
        num_partitions=count,
        replication_factor=1,
        configs=[made.Topic.Config(name=key, value=text(run, value)) for key, value in settings.items()],
    )
    answer = run.ask("CreateTopicsRequest", 7, topics=[topic], timeout_ms=10000).topics[0]
    if answer.error_code:
        raise BadNotation(f"{ErrorCode(answer.error_code).name}: {answer.error_message}")
    run.names.topic_id(topic.name, answer.topic_id)
    _wait(run, topic.name, count, answer.topic_id)


def ready(run: Run, command: Command) -> None:
    """Perform `ready $t partitions=3`: wait until a topic that the scenario itself has created can be used."""
    given, _ = options(command.tokens[1:], {"partitions"}, strict=True)
    _wait(run, run.names.text(str(command.tokens[0])), int(str(given.get("partitions", "1"))), None)


def _wait(run: Run, name: str, count: int, topic_id: bytes | None) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not _is_ready(run, name, count, topic_id):
        if time.monotonic() > deadline:
            raise BadNotation(f"the topic is not ready after {READY_SECONDS:.0f} s")
        time.sleep(0.005)


def _is_ready(run: Run, name: str, count: int, topic_id: bytes | None) -> bool:
    asked = apis.APIS[3].request.Topic(name=name)
    found = run.ask("MetadataRequest", 12, topics=[asked], allow_auto_topic_creation=False).topics[0]
    if len(found.partitions) < count or (topic_id and found.topic_id != topic_id):
        return False
    run.names.topic_id(name, found.topic_id)
    lists = apis.APIS[2].request
    partitions = [lists.Topic.Partition(partition_index=n, timestamp=-1) for n in range(count)]
    answer = run.ask("ListOffsetsRequest", 7, topics=[lists.Topic(name=name, partitions=partitions)])
    return all(partition.error_code == 0 for partition in answer.topics[0].partitions)


def delete(run: Run, command: Command) -> None:
    """Perform `delete $t`: delete the topic, and wait until the broker no longer reports it."""
    name = run.names.text(str(command.tokens[0]))
    answer = run.ask("DeleteTopicsRequest", 5, topic_names=[name], timeout_ms=10000).responses[0]
    if answer.error_code:
        raise BadNotation(ErrorCode(answer.error_code).name)
    asked = apis.APIS[3].request.Topic(name=name)
    deadline = time.monotonic() + READY_SECONDS
    while not run.ask("MetadataRequest", 12, topics=[asked], allow_auto_topic_creation=False).topics[0].error_code:
        if time.monotonic() > deadline:
            raise BadNotation("the topic is still there")
        time.sleep(0.005)


def producer(run: Run, command: Command) -> None:
    """Perform `producer $p`: let `$p` stand for the new producer id of an idempotent producer."""
    answer = run.ask("InitProducerIdRequest", 4, transaction_timeout_ms=60000)
    deadline = time.monotonic() + READY_SECONDS
    while answer.error_code and ErrorCode(answer.error_code).retriable and time.monotonic() < deadline:
        time.sleep(0.05)
        answer = run.ask("InitProducerIdRequest", 4, transaction_timeout_ms=60000)
    if answer.error_code:
        raise BadNotation(ErrorCode(answer.error_code).name)
    run.names.bind(str(command.tokens[0]), "producer", answer.producer_id)


def pause(run: Run, command: Command) -> None:
    given, _ = options(command.tokens, {"ms"}, strict=True)
    time.sleep(int(str(given["ms"])) / 1000)


def close(run: Run, command: Command) -> None:
    run.close(command.connection)
