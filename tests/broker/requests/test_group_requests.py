"""Which topics of a group's description a client may see: looked at in steps, and again if the group changed since."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from fencepost.broker.requests.group_requests import SeenGroups
from fencepost.broker.security.acls import ResourceType
from fencepost.protocol.errors import ErrorCode, KafkaError


class Epoch(NamedTuple):
    epoch: int


class Group:
    """A group that names some topics. Its epochs change when a test says so."""

    def __init__(self, *topics: str) -> None:
        self.topics = list(topics)
        self.epoch = self.target_epoch = Epoch(1)


class Looked:
    """One request of a client that may describe every group, and the topics that do not begin with "secret"."""

    def __init__(self, group: Group) -> None:
        self.names = 0  # that were looked at
        access = SimpleNamespace(is_enforced=True, allows=self._allows)
        call: Any = SimpleNamespace(session=None)
        broker: Any = SimpleNamespace(access=access)
        self.groups = SeenGroups(broker, call, lambda group_id: group, self._named)

    def _allows(self, session: object, operation: object, kind: ResourceType, name: str) -> bool:
        self.names += kind is ResourceType.TOPIC
        return not name.startswith("secret")

    def _named(self, group: Group) -> Iterator[list[str]]:
        for topic in group.topics:
            yield [topic]

    def refusal(self) -> ErrorCode:
        """Return the error of describing the group; NONE if it may be described."""
        try:
            self.groups.find("g")
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


def test_rights_to_the_topics_of_a_group_described_ten_times_are_checked_once() -> None:
    looked = Looked(Group("a", "b", "c"))
    assert len(list(looked.groups.look(["g"] * 10))) >= 3, "in steps"
    assert [looked.refusal() for _ in range(10)] == [ErrorCode.NONE] * 10
    assert looked.names == 3


def test_describing_a_group_with_a_topic_that_the_client_may_not_describe_is_refused() -> None:
    looked = Looked(Group("a", "secret-b"))
    list(looked.groups.look(["g"]))
    assert looked.refusal() is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("epoch", ["epoch", "target_epoch"])
def test_rights_to_the_topics_of_a_group_are_checked_anew_if_it_changed_meanwhile(epoch: str) -> None:
    group = Group("a")
    looked = Looked(group)
    list(looked.groups.look(["g"]))
    assert looked.refusal() is ErrorCode.NONE
    group.topics.append("secret-b")
    setattr(group, epoch, Epoch(2))
    assert looked.refusal() is ErrorCode.TOPIC_AUTHORIZATION_FAILED
