"""A broker to which the requests of the matrix are sent: a connection for each user, the topics, groups and ids that
the requests need, and each answer as one short line.

The line has what an answer says of each resource: its name, its error code, and the operations that the user may
perform (`may Read+Write`). What is within a struct stands in brackets. An answer without any of these is `NONE`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from fencepost.broker.security.acls import AclBinding, Operation
from fencepost.protocol.apis import APIS, Api, decode_response, encode_request
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import ZERO_UUID
from fencepost.protocol.records import Record, build
from fencepost.protocol.schema import NONE, Array, Fixed, Nested, Text, schema_of
from oracle.wire import Connection

from .grants import PREFIX, SUPER, user_of

Make = Callable[[str], Connection]
NAMED = ("name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name", "user")
CODES = ("error_code", "partition_error_code", "topic_config_error_code")
NO_OPERATIONS = -(2**31)
PATIENCE_SECONDS = 30.0
OFFSETS_TOPIC = "__consumer_offsets"
BROKER = 4  # a resource type of configs
LATER = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
APIS_BY_NAME = {api.name: api for api in APIS.values()}


class World:
    """A broker whose rights are tested: one of ours, or Apache Kafka. `what` is always a user, by its name in the
    matrix, such as `Topic Read`.
    """

    def __init__(self, connect: Make, *, settles_within_s: float = 0) -> None:
        """connect: opens a connection of a user. settles_within_s: how long to wait before looking whether a topic
        exists, because an earlier request may still take effect after its answer.
        """
        self._settles_within_s = settles_within_s
        self._connect = connect
        self._connections: dict[str, Connection] = {}
        self._correlation = 0
        self._ids: dict[str, bytes] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # ---- asking ----------------------------------------------------------------------------------------------

    def ask(self, what: str, name: str, version: int, **fields: Any) -> Any:
        """Send a request, by its name and fields, as this user. Returns the response; None if the connection was closed
        instead.
        """
        api = APIS_BY_NAME[name]
        return self.receive(what, api, version, self.send(what, api, version, made(api.request, fields)))

    def admin(self, name: str, version: int, **fields: Any) -> Any:
        return self.ask(SUPER, name, version, **fields)

    def send(self, what: str, api: Api, version: int, request: Any) -> int:
        connection = self._connections.get(what)
        if connection is None or connection.is_closed:
            connection = self._connections[what] = self._connect(what)
        self._correlation += 1
        frame = encode_request(api, version, self._correlation, user_of(what), request)
        connection.send(b"".join(bytes(piece) for piece in frame))
        return self._correlation

    def receive(self, what: str, api: Api, version: int, correlation: int) -> Any:
        frame = self._connections[what].receive()
        if frame is None:
            return None
        got, response = decode_response(api, version, frame)
        assert got == correlation
        return response

    def answer(self, what: str, api: Api, version: int, fields: dict[str, Any], *, unanswered: bool = False) -> str:
        """Send a request as this user. Returns the line that shows the answer."""
        correlation = self.send(what, api, version, made(api.request, fields))
        if unanswered:
            stays = self.ask(what, "ApiVersions", 0) is not None
            return "stays open" if stays else "closed"
        response = self.receive(what, api, version, correlation)
        return "closed" if response is None else self.shown(response, version)

    # ---- what has to be there --------------------------------------------------------------------------------

    def prepare(self, rules: dict[str, list[AclBinding]]) -> None:
        """Make the broker ready for the request of every row of the matrix (rows.py).

        It then has these ACLs, topics `t` and `hidden`, but none of those that must not exist, groups with committed
        offsets, a group with a member, and transactional ids, one of them with an open transaction.
        """
        for name in ("gone", "doomed", "fresh"):
            self.have_no_topic(PREFIX + name)
        for name, partitions in ((PREFIX + "t", 2), ("hidden", 1)):
            self.have_topic(name, partitions)
        self._have_rules(rules)
        offsets = [
            {"name": PREFIX + "t", "partitions": [{"partition_index": i, "committed_offset": 0} for i in (0, 1)]}
        ]
        offsets.append({"name": "hidden", "partitions": [{"partition_index": 0, "committed_offset": 0}]})
        for group in (PREFIX + "g", "hidden"):
            self.eventually("FindCoordinator", 4, key_type=0, coordinator_keys=[group])
            self.eventually("OffsetCommit", 8, group_id=group, topics=offsets)
        self.join_group(PREFIX + "read", PREFIX + "t")
        for name in (PREFIX + "x", PREFIX + "open", "hidden"):
            found = self.init(name)
            if name == PREFIX + "open":
                self.add(name, found, (PREFIX + "t", "hidden"))

    @property
    def node_id(self) -> int:
        return int(self.admin("Metadata", 12, topics=[]).brokers[0].node_id)

    def commit(self, group: str, topic: str) -> None:
        """Commit an offset of this group."""
        part = {"partition_index": 0, "committed_offset": 0}
        self.eventually("OffsetCommit", 8, group_id=group, topics=[{"name": topic, "partitions": [part]}])

    def join_group(self, group: str, topic: str) -> None:
        """Join the group with a member of the newer protocol (KIP-848) that subscribes to the topic."""
        self.eventually("FindCoordinator", 4, key_type=0, coordinator_keys=[group])
        self.eventually(
            "ConsumerGroupHeartbeat",
            1,
            group_id=group,
            member_id="reader",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )

    def init(self, transactional_id: str) -> Any:
        self.eventually("FindCoordinator", 4, key_type=1, coordinator_keys=[transactional_id])
        return self.eventually("InitProducerId", 4, transactional_id=transactional_id, transaction_timeout_ms=900_000)

    def new_producer_id(self) -> int:
        """Return a new producer id without a transactional id."""
        return int(self.eventually("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0).producer_id)

    def add(self, transactional_id: str, producer: Any, topics: tuple[str, ...]) -> None:
        self.eventually(
            "AddPartitionsToTxn",
            3,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[{"name": topic, "partitions": [0]} for topic in topics],
        )

    def have_topic(self, name: str, partitions: int = 1) -> None:
        """Wait until the topic exists and can be used, and create it if it does not exist."""
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        time.sleep(self._settles_within_s)

        def is_there() -> bool:
            if self.topic_code(name) == ErrorCode.NONE:
                return self.leads(name)
            self.admin("CreateTopics", 5, topics=[topic], timeout_ms=10_000)
            return False

        self._until(is_there)

    def have_no_topic(self, name: str) -> None:
        time.sleep(self._settles_within_s)
        if self.topic_code(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return
        self.admin("DeleteTopics", 5, topic_names=[name], timeout_ms=10_000)
        self._until(lambda: self.topic_code(name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def topic_code(self, name: str) -> int:
        answer = self.admin("Metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False)
        self._ids.pop(name, None)
        if answer.topics[0].error_code == ErrorCode.NONE:
            self._ids[name] = answer.topics[0].topic_id
        return int(answer.topics[0].error_code)

    def leads(self, name: str) -> bool:
        """Return whether the broker serves the topic's partition 0. It may name a topic in Metadata before that."""
        asked = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        return self.admin("ListOffsets", 5, topics=asked).topics[0].partitions[0].error_code == ErrorCode.NONE

    def topic_id(self, name: str) -> bytes:
        """Return the id of a topic; for one that does not exist, an id that no topic has."""
        if name not in self._ids:
            self.topic_code(name)
        return self._ids.get(name, b"\x07" * 16)

    def eventually(self, name: str, version: int, **fields: Any) -> Any:
        """Send a request as the super user until no part of the answer has an error that says to try again. Returns
        that answer, which has no error.
        """
        found: list[Any] = []

        def done() -> bool:
            found[:] = [self.admin(name, version, **fields)]
            return not _codes(found[0]) & LATER

        self._until(done)
        assert _codes(found[0]) == {ErrorCode.NONE}, (name, found[0])
        return found[0]

    def _have_rules(self, rules: dict[str, list[AclBinding]]) -> None:
        every = [rule for of_user in rules.values() for rule in of_user]
        creations = [
            {
                "resource_type": rule.resource_type,
                "resource_name": rule.resource_name,
                "resource_pattern_type": rule.pattern_type,
                "principal": rule.principal,
                "host": rule.host,
                "operation": rule.operation,
                "permission_type": rule.permission,
            }
            for rule in every
        ]
        self.admin("CreateAcls", 3, creations=creations)
        everything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}

        def are_there() -> bool:
            found = self.admin("DescribeAcls", 3, **everything).resources
            return sum(len(each.acls) for each in found) >= len(every)

        self._until(are_there)

    @staticmethod
    def _until(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            assert time.monotonic() < deadline, "what the matrix needs does not come about"
            time.sleep(0.02)

    # ---- answers ---------------------------------------------------------------------------------------------

    def shown(self, message: Any, version: int) -> str:
        """Return the line that shows an answer."""
        return self._shown(message, version) or "NONE"

    def _shown(self, message: Any, version: int) -> str:
        fields = [field for field in schema_of(type(message)).fields if version in field.versions]
        name = self._name(message, {field.name for field in fields})
        if name is None:
            return ""
        words = [name] if name else []
        nested: list[str] = []
        for field in fields:
            value = getattr(message, field.name)
            if field.name in CODES and (value or field.name != CODES[-1]):
                words.append(ErrorCode(value).name)
            elif field.name.endswith("authorized_operations") and value != NO_OPERATIONS:
                words.append(f"may {_operations(value)}")
            elif isinstance(field.kind, Array) and isinstance(field.kind.item, Nested) and value is not None:
                nested += [self._shown(item, version) for item in value]
        parts = sorted({part for part in nested if part})
        return " ".join(words + ([f"[{', '.join(parts)}]"] if parts else []))

    def _name(self, message: Any, fields: set[str]) -> str | None:
        """Return the name of the resource that a struct is about, without PREFIX; or "id of " and the topic's name, or
        "id" for an unknown topic id. "" if it names none, and None if the matrix has no such resource.
        """
        if getattr(message, "resource_type", None) == BROKER:
            return "broker"
        for field in NAMED:
            if field in fields and (name := getattr(message, field)):
                if name in ("hidden", OFFSETS_TOPIC) or name.startswith(PREFIX):
                    return str(name.removeprefix(PREFIX))
                return None
        topic_id = getattr(message, "topic_id", ZERO_UUID) if "topic_id" in fields else ZERO_UUID
        if topic_id == ZERO_UUID:
            return ""
        return next(
            ("id of " + name.removeprefix(PREFIX) for name, each in self._ids.items() if each == topic_id), "id"
        )


def made(cls: type, values: dict[str, Any]) -> Any:
    """Return a message with these fields. A field that is not given has its default, or is empty."""
    given = {}
    for field in schema_of(cls).fields:
        kind = field.kind
        if field.name in values:
            value = values[field.name]
            nested = isinstance(kind, Array) and isinstance(kind.item, Nested) and value is not None
            given[field.name] = [made(kind.item.cls, each) for each in value] if nested else value
            if isinstance(kind, Nested) and value is not None:
                given[field.name] = made(kind.cls, value)
        elif field.required:
            given[field.name] = _empty(field)
    unknown = values.keys() - {field.name for field in schema_of(cls).fields}
    assert not unknown, (cls.__name__, unknown)
    return cls(**given)


def _empty(field: Any) -> Any:
    if field.nullable is not NONE:
        return None
    if isinstance(field.kind, Fixed):
        return field.kind.zero
    return "" if isinstance(field.kind, Text) else [] if isinstance(field.kind, Array) else b""


def batch(*, producer_id: int = -1, epoch: int = -1, sequence: int = -1, transactional: bool = False) -> bytes:
    """Return a batch of one record."""
    record = Record(0, int(time.time() * 1000), None, b"v", ())
    return build(
        [record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def _operations(bits: int) -> str:
    return (
        "+".join(
            "".join(part.capitalize() for part in operation.name.split("_"))
            for operation in Operation
            if bits >> operation & 1
        )
        or "nothing"
    )


def _codes(message: Any) -> set[int]:
    found: set[int] = set()
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if field.name in CODES:
            found.add(ErrorCode(value))
        elif isinstance(field.kind, Array) and isinstance(field.kind.item, Nested):
            for item in value or ():
                found |= _codes(item)
    return found
