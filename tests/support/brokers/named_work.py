"""The most expensive requests of named producers: rows for tests/broker/net/test_work_of_requests.py."""

from typing import Any

from fencepost.broker.producers.names import epoch_row, highest_row, name_row, topic_row
from fencepost.protocol.messages.named_producers import (
    DescribeNamedProducersRequest,
    OpenNamedProducerRequest,
    RemoveNamedProducersRequest,
)
from work_of_requests import PARTITIONS, World

MANY = 400


def _write_everywhere(world: World, names: list[str]) -> None:
    """Give the broker the state of named producers that have written to every partition of topic wide."""
    topic, producers = world.broker.broker.topics.by_name["wide"], world.broker.broker.named_producers
    producers.topic.ensure()
    rows = [epoch_row(1)]
    for name in names:
        rows += [name_row(name, 1, "who"), topic_row(name, topic.id, PARTITIONS)]
        rows += [highest_row(name, (topic.id, index), 7) for index in range(PARTITIONS)]
    for row in rows:
        producers.names.apply(row)


def open_topics(world: World) -> list[Any]:
    """Return a request that opens a named producer with topic wide, many times over, and with many missing topics."""
    _write_everywhere(world, ["p"])
    made = OpenNamedProducerRequest.Topic
    topics = [made(name=name, partition_count=PARTITIONS) for name in ["wide"] * MANY]
    topics += [made(name=f"n{number}", partition_count=1) for number in range(MANY)]
    return [OpenNamedProducerRequest(name="p", epoch=1, topics=topics)]


def describe(world: World) -> list[Any]:
    names = [f"p{number}" for number in range(50)]
    _write_everywhere(world, names)
    return [DescribeNamedProducersRequest(names=names * 8)]


def remove(world: World) -> list[Any]:
    names = [f"p{number}" for number in range(20)]
    _write_everywhere(world, names)
    return [RemoveNamedProducersRequest(names=names * 20)]


ROWS: dict[str, tuple[Any, ...]] = {
    "OpenNamedProducer": (open_topics,),
    "DescribeNamedProducers": (describe,),
    "RemoveNamedProducers": (remove, 60_000, "one unit a name, of each partition that it has written to"),
}
