"""How a mirror asks both clusters for the ids of topics."""

from types import SimpleNamespace
from typing import Any

import pytest
from fencepost.client.errors import UnknownTopicError
from fencepost.client.mirror import topic_ids
from fencepost.client.mirror.positions import Position
from fencepost.client.mirror.topic_ids import TopicIds
from fencepost.client.net.environment import SYSTEM
from fencepost.client.values import TopicPartition


class Cluster:
    """An Admin that knows ids of topics, and notes what it was asked for. late: a topic it knows from the third time
    on.
    """

    def __init__(self, ids: dict[str, bytes], late: str = "") -> None:
        self.ids, self.late = ids, late
        self.asked: list[list[str]] = []

    async def describe_topics(self, names: list[str]) -> dict[str, Any]:
        self.asked.append(names)
        if (self.late in names and len(self.asked) < 3) or set(names) - self.ids.keys():
            raise UnknownTopicError("no such topic")
        return {name: SimpleNamespace(topic_id=self.ids[name]) for name in names}


def ids_of(source: Cluster, target: Cluster) -> TopicIds:
    return TopicIds(source, target, SYSTEM)  # type: ignore[arg-type]


async def test_a_check_of_many_topics_is_one_request_to_each_cluster():
    names = [f"t{number:02}" for number in range(50)]
    source, target = Cluster(dict.fromkeys(names, b"s")), Cluster(dict.fromkeys(names, b"t"))
    await ids_of(source, target).check({TopicPartition(name, 0): Position(7, b"s", None, b"t") for name in names})
    assert source.asked == target.asked == [names]


async def test_a_check_without_positions_asks_nobody():
    source, target = Cluster({}), Cluster({})
    await ids_of(source, target).check({})
    assert source.asked == target.asked == []


async def test_the_id_of_a_topic_that_the_cluster_knows_only_later_is_returned(monkeypatch):
    monkeypatch.setattr(topic_ids, "STEP_MS", 0)
    source = Cluster({"a": b"1", "b": b"2"}, late="b")
    assert await ids_of(source, Cluster({})).on_source(["b", "a"]) == {"a": b"1", "b": b"2"}
    assert source.asked == [["a", "b"], ["a"], ["b"]]  # each alone, once one was unknown


async def test_a_topic_that_stays_unknown_stops_the_mirror_of_it(monkeypatch):
    monkeypatch.setattr(topic_ids, "SETTLING_MS", 0)
    with pytest.raises(topic_ids.StoppedError, match="deleted on the target"):
        await ids_of(Cluster({}), Cluster({"a": b"1"})).on_target(["a", "b"])
