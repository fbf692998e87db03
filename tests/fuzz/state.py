"""Targets: records of internal topics, the catalogue, the consumer protocol of group members.

The rule: a record is read, or refused by the error that its module names; what was read is written as a record that
reads as the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fencepost.broker.groups import group_records
from fencepost.broker.groups import records as offsets
from fencepost.broker.groups.consumer import records as consumer_records
from fencepost.broker.groups.consumer.records import (
    Change,
    Classic,
    Current,
    GroupEpoch,
    Kind,
    MemberState,
    Resolved,
)
from fencepost.broker.groups.consumer.records import Subscription as MemberSubscription
from fencepost.broker.groups.consumer_protocol import (
    UnreadableMetadata,
    assignment_for,
    read_assignment,
    read_subscription,
)
from fencepost.broker.groups.group_records import KeptGroup, KeptMember, UnreadableGroup
from fencepost.broker.groups.records import Committed, Place, UnreadableRecord
from fencepost.broker.groups.share import records as share_records
from fencepost.broker.groups.subscriptions import topics_of
from fencepost.broker.groups.targets import Target as TargetAssignment
from fencepost.broker.groups.targets import TargetEpoch
from fencepost.broker.producers.names import (
    DamagedNameRecord,
    Names,
    NewerNameRecord,
    epoch_row,
    highest_row,
    name_row,
    topic_row,
)
from fencepost.broker.quotas.entities import CLIENT_ID, PRODUCER_BYTE_RATE, USER
from fencepost.broker.quotas.quota_records import quota_set
from fencepost.broker.security.acl_records import acl_added
from fencepost.broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.credentials import Mechanism, ScramCredential, credential_set, secret_set
from fencepost.broker.security.security_state import DAMAGED_RECORD, NEWER_RECORD, SecurityState
from fencepost.broker.share import records as share_state
from fencepost.broker.share.values import SharePartitionKey, Snapshot, State, StateBatch, Update
from fencepost.broker.topics import catalogue
from fencepost.broker.topics.catalogue import Catalogue, MarkerDebt, NewerCatalogue, TopicEntry
from fencepost.broker.topics.names import LEDGER_TOPIC, OFFSETS_TOPIC, STATE_TOPIC
from fencepost.broker.transactions import ledger
from fencepost.broker.transactions import records as transactions
from fencepost.broker.transactions.ledger import DamagedLedgerRecord, Entry, NewerLedgerRecord
from fencepost.broker.transactions.records import DamagedTransactionRecord, NewerTransactionRecord
from fencepost.broker.transactions.states.transaction import NO_EPOCH, NO_ID, Prepared, Status, Transaction
from fencepost.broker.upkeep import coordinator_snapshots as snapshots
from fencepost.broker.upkeep import coordinator_sources
from fencepost.client.assignors import consumer_protocol as consumers
from fencepost.client.assignors.consumer_protocol import Assignment, Subscription
from fencepost.client.values import TopicPartition
from fencepost.protocol.errors import MalformedFrame
from fencepost.protocol.record_fields import UnreadableRecord as UnreadableGroupRecord
from fuzz.storage import PATH, disk_with, written
from fuzz.target import REFUSED, Target, joined, outcome, two

# ---- offsets -----------------------------------------------------------------------------------------------------


def look_at_offsets(data: bytes) -> None:
    key, value = two(data)
    kind = outcome(lambda: offsets.key_kind(key), UnreadableRecord)
    place = outcome(lambda: offsets.read_offset_key(key), UnreadableRecord) if kind in offsets.OFFSET_KEYS else REFUSED
    if place is not REFUSED:
        assert offsets.read_offset_key(offsets.offset_key(place)) == place
    committed = outcome(lambda: offsets.read_offset_value(value, 5), UnreadableRecord)
    if committed is not REFUSED:
        assert offsets.read_offset_value(offsets.offset_value(committed), 5) == committed


def _offset_records() -> Iterator[bytes]:
    key = offsets.offset_key(Place("group", "topic", 3))
    for committed in (
        Committed(5, 1, "metadata", 1_000, 50, bytes(range(16)), 7_000),
        Committed(5, -1, "", 1_000, offsets.UNKNOWN_AGE),
    ):
        yield joined(key, offsets.offset_value(committed))
    text, number = b"\0\4text", (5).to_bytes(8, "big")
    yield joined(b"\0\0" + key[2:], b"\0\0" + number + text + number)
    yield joined(key, b"\0\1" + number + text + number + number)
    yield joined(key, b"\0\2" + number + text + number)
    yield joined(key, b"\0\3" + number + b"\0\0\0\1" + text + number)
    yield joined(b"\0\2" + text, b"")


# ---- groups ------------------------------------------------------------------------------------------------------


def look_at_groups(data: bytes) -> None:
    key, value = two(data)
    name = outcome(lambda: group_records.read_key(key), UnreadableGroup)
    if name is not REFUSED:
        assert group_records.read_key(group_records.key(name)) == name
    group = outcome(lambda: group_records.read_value(value), UnreadableGroup)
    if group is not REFUSED:
        again = group_records.read_value(group_records.value(group))
        # A record of a group with members has no age; one of a group without has no protocol and no leader.
        assert group_records.value(again) == group_records.value(group)


def _group_records() -> Iterator[bytes]:
    key = group_records.key("group")
    member = KeptMember("m-1", "instance", "client", "host", 60_000, 45_000, b"subscription", b"assignment")
    for group in (
        KeptGroup("consumer", 5, "range", "m-1", (member, member._replace(instance_id=None)), 1_000),
        KeptGroup("consumer", 5, None, None, (), 1_000, 50),
        KeptGroup("consumer", 5, None, None, ()),
    ):
        yield joined(key, group_records.value(group))
    older = group_records.value(KeptGroup("consumer", 5, "range", "m-1", (member,), 1_000))
    for version in range(3):
        yield joined(key, version.to_bytes(2, "big") + older[2:])


def look_at_consumer_groups(data: bytes) -> None:
    key, value = two(data)
    found = outcome(lambda: consumer_records.read(key, value), UnreadableGroupRecord)
    if found is not REFUSED:
        written = consumer_records.record(*found)
        assert consumer_records.read(*written) == found


def look_at_share_partitions(data: bytes) -> None:
    key, value = two(data)
    found = outcome(lambda: share_state.read_key(key), UnreadableGroupRecord)
    if found is not REFUSED:
        assert share_state.read_key(share_state.record_key(*found)) == found
    update = outcome(lambda: share_state.read_update(value), UnreadableGroupRecord)
    if update is not REFUSED:
        assert share_state.read_update(share_state.update_value(update, 0)) == update
    snapshot = outcome(lambda: share_state.read_snapshot(value), UnreadableGroupRecord)
    if snapshot is not REFUSED:
        assert share_state.read_snapshot(share_state.snapshot_value(snapshot)) == snapshot


def _share_partition_records() -> Iterator[bytes]:
    batches = [StateBatch(3, 4, State.AVAILABLE, 1), StateBatch(5, 90, State.ACKNOWLEDGED, 2, "member")]
    key = SharePartitionKey("group", b"t" * 16, 3)
    update, snapshot = Update(3, 86, batches), Snapshot(7, 2, 3, 86, batches[:1], 1_000, 2_000)
    yield joined(share_state.record_key(share_state.Kind.UPDATE, key), share_state.update_value(update, 7))
    yield joined(share_state.record_key(share_state.Kind.SNAPSHOT, key), share_state.snapshot_value(snapshot))


def look_at_share_groups(data: bytes) -> None:
    key, value = two(data)
    found = outcome(lambda: share_records.read(key, value), UnreadableGroupRecord)
    if found is not REFUSED:
        written = share_records.record(*found)
        assert share_records.read(*written) == found


def _share_records() -> Iterator[bytes]:
    shared = {b"t" * 16: share_records.SharedTopic("t", frozenset({0, 1}))}
    for change in (
        share_records.Change(share_records.Kind.EPOCH, "", share_records.GroupEpoch(3, 7)),
        share_records.Change(share_records.Kind.MEMBER, "m", share_records.Member("r", "client", "host", ("t", "u"))),
        share_records.Change(share_records.Kind.TARGET_EPOCH, "", TargetEpoch(3, 1_000)),
        share_records.Change(share_records.Kind.TARGET, "m", TargetAssignment({b"t" * 16: frozenset({0, 1})})),
        share_records.Change(share_records.Kind.CURRENT, "m", share_records.Current(3, 2, {b"t" * 16: frozenset({0})})),
        share_records.Change(
            share_records.Kind.STATE_PARTITIONS, "", share_records.StatePartitions(shared, shared, {b"u" * 16: "u"})
        ),
    ):
        key, written = share_records.record("group", change)
        assert written is not None
        yield joined(key, written)


def _consumer_records() -> Iterator[bytes]:
    for kind, value in (
        (Kind.EPOCH, GroupEpoch(3, 7)),
        (Kind.EPOCH, GroupEpoch(3, 7, 1_000)),
        (Kind.SUBSCRIPTION, MemberSubscription("i", "r", "client", "host", ("t", "u"), "x.*", 60_000, "range")),
        (Kind.SUBSCRIPTION, MemberSubscription(classic=Classic(45_000, (("range", b"metadata"),)))),
        (Kind.TARGET_EPOCH, TargetEpoch(3, 1_000)),
        (Kind.TARGET, TargetAssignment({b"t" * 16: frozenset({0, 1})})),
        (Kind.CURRENT, Current(3, 2, MemberState.UNREVOKED, {b"t" * 16: {0: 2}}, {b"u" * 16: {1: 3}})),
        (Kind.REGEX, Resolved(("t", "u"), 5, 1_000)),
    ):
        key, written = consumer_records.record("group", Change(kind, "m-1", value))
        yield joined(key, written or b"")


# ---- transactions ------------------------------------------------------------------------------------------------


def look_at_transactions(data: bytes) -> None:
    key, value = two(data)
    refusals = DamagedTransactionRecord, NewerTransactionRecord
    outcome(lambda: transactions.read(key, None), *refusals)
    found = outcome(lambda: transactions.read(key, value, 77), *refusals)
    if found is REFUSED:
        return
    name, state = found
    assert state.transactional_id == name
    again = transactions.read(transactions.key(name), transactions.value(state), 77)
    # A finished transaction has no partitions in its record, and the old version has no field for our additions.
    assert again == (name, state if state.status != Status.EMPTY else state._replace(partitions={}))


def _transaction(status: Status, **more: Any) -> Transaction:
    partitions = {("t", 0): 5, ("t", 1): 6, ("u", 0): 7}
    fields: dict[str, Any] = {
        "transactional_id": "x",
        "producer_id": 9,
        "producer_epoch": 3,
        "timeout_ms": 60_000,
        "status": status,
        "partitions": partitions if status is not Status.EMPTY else {},
        "start_ms": 1_000,
        "last_update_ms": 2_000,
        "started_age_ms": 10,
        "updated_age_ms": 20,
        "last_producer_epoch": NO_EPOCH,
        "previous_producer_id": NO_ID,
        "next_producer_id": NO_ID,
        "next_producer_epoch": NO_EPOCH,
        "client_version": 0,
        "enable_2pc": False,
        "prepared": None,
        "opened_at": 8,
    }
    return Transaction(**fields | more)


def _transaction_records() -> Iterator[bytes]:
    key = transactions.key("x")
    for status in Status:
        yield joined(key, transactions.value(_transaction(status)))
    full = _transaction(
        Status.ONGOING,
        previous_producer_id=8,
        next_producer_id=10,
        next_producer_epoch=0,
        client_version=2,
        last_producer_epoch=2,
        prepared=Prepared("ledger key", 4, 9_000, 15),
    )
    yield joined(key, transactions.value(full))
    old = b"\0\0" + transactions.value(full)[2:17]
    one_topic = b"\0\0\0\1\0\1t\0\0\0\2" + bytes(7) + b"\1"
    yield joined(key, old + one_topic + bytes(16))
    yield joined(key, old + b"\xff\xff\xff\xff" + bytes(16))


# ---- ledger ------------------------------------------------------------------------------------------------------


def look_at_ledger(data: bytes) -> None:
    key, value = two(data)
    refusals = DamagedLedgerRecord, NewerLedgerRecord
    outcome(lambda: ledger.read_record(key, None), *refusals)
    found = outcome(lambda: ledger.read_record(key, value), *refusals)
    if found is not REFUSED:
        name, entry = found
        assert ledger.read_record(ledger.record_key(name), ledger.record_value(entry)) == found


def _ledger_records() -> Iterator[bytes]:
    for entry in (Entry(4, "owner", b"digest", True, 1_000), Entry(0, "", b"", False, 0)):
        yield joined(ledger.record_key("key"), ledger.record_value(entry))


# ---- named producers ---------------------------------------------------------------------------------------------


def look_at_names(data: bytes) -> None:
    """A record on top of a state: refused, and nothing has changed, or what the state then gives is the same state."""
    names = Names()
    for row in _names():
        names.apply(row)
    before = list(names.rows())
    row = two(data)
    if outcome(lambda: names.apply(row), DamagedNameRecord, NewerNameRecord) is REFUSED:
        assert list(names.rows()) == before
        return
    again = Names()
    for each in names.rows():
        again.apply(each)
    assert list(again.rows()) == list(names.rows())
    assert again.entries == names.entries


def _names() -> list[tuple[bytes, bytes]]:
    place = b"t" * 16, 3
    rows = epoch_row(9), name_row("x", 8, "who"), topic_row("x", place[0], 4), highest_row("x", place, 2**40)
    return [(key, value or b"") for key, value in rows]


def _name_records() -> Iterator[bytes]:
    for key, value in _names():
        yield joined(key, value)


# ---- snapshots of all of these -----------------------------------------------------------------------------------


def look_at_snapshots(data: bytes) -> None:
    """Read a snapshot with a correct checksum: the position after it, and the rows of each topic."""
    disk = disk_with(PATH, written(snapshots.KIND, data))
    found = outcome(lambda: snapshots.read_snapshot(disk, PATH), *snapshots._UNUSABLE)
    if found is REFUSED:
        return
    for rows in found.positions.values():
        assert all(type(number) is int for row in rows for number in row)
    for topic in (OFFSETS_TOPIC, STATE_TOPIC, LEDGER_TOPIC):
        entries = outcome(partial(found.entries, topic), *snapshots._UNUSABLE)
        for row in () if entries is REFUSED else entries:
            outcome(partial(coordinator_sources._transaction, row), *snapshots._UNUSABLE)


def _snapshots() -> Iterator[bytes]:
    positions = {OFFSETS_TOPIC: [(0, 5, 100), (1, 6, 0)], STATE_TOPIC: [(0, 7, 3)]}
    fields = {STATE_TOPIC: (*Transaction._fields, *Prepared._fields)}
    rows = {STATE_TOPIC: [snapshots._pack([_transaction(Status.ONGOING), _transaction(Status.EMPTY)])]}
    yield snapshots._pack([positions, fields, rows])
    yield snapshots._pack([{}, {}, {}])


# ---- catalogue and security log ----------------------------------------------------------------------------------


def look_at_catalogue(data: bytes) -> None:
    key, value = two(data)
    state = Catalogue()
    for content in (None, value):
        if outcome(partial(state.apply, key, content), NewerCatalogue, *catalogue.DAMAGED_RECORD) is REFUSED:
            continue
        for entry in state.topics.values():
            again = Catalogue()
            again.apply(*catalogue.topic_changed(entry))
            assert again.topics == {entry.topic_id: entry}


def _catalogue_records() -> Iterator[bytes]:
    yield from (
        joined(key, value or b"")
        for key, value in (
            catalogue.topic_changed(TopicEntry("t", bytes(16), (1, 2), {"cleanup.policy": "compact"})),
            catalogue.producer_ids_given(1000),
            catalogue.broker_configs_changed("", {"log.retention.ms": "5"}),
            catalogue.group_configs_changed("g", {"consumer.session.timeout.ms": "50000"}),
            catalogue.marker_owed(5, 9, MarkerDebt(1, 2, True)),
            catalogue.security_log_made(3),
            catalogue.cluster_begun("id"),
        )
    )


def look_at_security_log(data: bytes) -> None:
    key, value = two(data)
    state = SecurityState(Authorizer())
    refusals = (*DAMAGED_RECORD, *NEWER_RECORD)
    outcome(lambda: state.apply(key, None), *refusals)
    if outcome(lambda: state.apply(key, value), *refusals) is REFUSED:
        return
    again = SecurityState(Authorizer())
    for binding in state.authorizer:
        again.apply(*acl_added(binding))
    for name in state.users.names:
        for credential in state.users.of(name):
            again.apply(*credential_set(name, credential))
            assert again.users.find(name, credential.mechanism) == credential
    assert set(again.authorizer) == set(state.authorizer)
    for entity in state.quotas:
        for kind, limit in state.quotas.of(entity).items():
            again.apply(*quota_set(entity, kind, limit))
            assert again.quotas.of(entity)[kind] == limit
    state.users.find_or_decoy("somebody", Mechanism.SHA_256)


def _security_records() -> Iterator[bytes]:
    allow = AclBinding(
        ResourceType.TOPIC, PatternType.PREFIXED, "orders", "User:alice", "10.0.0.1", Operation.READ, Permission.ALLOW
    )
    yield joined(*_present(acl_added(allow)))
    for mechanism in Mechanism:
        size = mechanism.bits // 8
        credential = ScramCredential(mechanism, b"salt", 4096, bytes(size), bytes(size))
        yield joined(*_present(credential_set("alice", credential)))
    yield joined(*_present(secret_set(b"s" * 32)))
    yield joined(*_present(quota_set(((CLIENT_ID, None), (USER, "alice")), PRODUCER_BYTE_RATE, 1e6)))


def _present(change: tuple[bytes, bytes | None]) -> tuple[bytes, bytes]:
    assert change[1] is not None
    return change[0], change[1]


# ---- the consumer protocol ---------------------------------------------------------------------------------------


def look_at_consumer_protocol(data: bytes) -> None:
    _back(data, consumers.decode_subscription, consumers.encode_subscription)
    _back(data, consumers.decode_assignment, consumers.encode_assignment)
    by_client = outcome(lambda: consumers.decode_subscription(data), MalformedFrame)
    by_broker = topics_of([data])
    if by_client is not REFUSED and data[2:6] != b"\xff\xff\xff\xff":  # the client reads a null list as an empty one
        assert by_broker == frozenset(by_client.topics)
    in_a_conversion = outcome(lambda: read_subscription(data), UnreadableMetadata)
    assert (in_a_conversion is REFUSED) == (by_client is REFUSED)
    if in_a_conversion is not REFUSED:
        assert (in_a_conversion.topics, in_a_conversion.rack_id) == (by_client.topics, by_client.rack_id)
        assert _places(in_a_conversion.owned) == _by_topic(by_client.owned)
    _look_at_assignment(data)


def _look_at_assignment(data: bytes) -> None:
    by_client = outcome(lambda: consumers.decode_assignment(data), MalformedFrame)
    found = outcome(lambda: read_assignment(data), UnreadableMetadata)
    if data:  # who was given nothing yet has no bytes
        assert (found is REFUSED) == (by_client is REFUSED)
    if data and found is not REFUSED:
        assert _places(found) == _by_topic(by_client.partitions)
        written = assignment_for(data, found)
        assert read_assignment(written) == {topic: sorted(partitions) for topic, partitions in found.items()}


def _places(by_topic: Mapping[str, Iterable[int]]) -> list[tuple[str, int]]:
    return [(topic, partition) for topic, partitions in by_topic.items() for partition in partitions]


def _by_topic(places: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Topics that come twice are one for the broker."""
    topics = dict.fromkeys(topic for topic, _ in places)
    return [place for topic in topics for place in places if place[0] == topic]


def _back(data: bytes, decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> None:
    found = outcome(lambda: decode(data), MalformedFrame)
    if found is not REFUSED:
        written = encode(found)
        assert encode(decode(written)) == written


def _members() -> Iterator[bytes]:
    owned = (TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0))
    yield consumers.encode_subscription(Subscription(("t", "u"), b"data", owned, 5, "rack"))
    yield consumers.encode_subscription(Subscription(()))
    yield consumers.encode_assignment(Assignment(owned, b"data"))


TARGETS = [
    Target("offset-records", look_at_offsets, _offset_records),
    Target("group-records", look_at_groups, _group_records),
    Target("consumer-group-records", look_at_consumer_groups, _consumer_records),
    Target("share-partition-records", look_at_share_partitions, _share_partition_records),
    Target("share-group-records", look_at_share_groups, _share_records),
    Target("transaction-records", look_at_transactions, _transaction_records),
    Target("ledger-records", look_at_ledger, _ledger_records),
    Target("records-of-named-producers", look_at_names, _name_records),
    Target("coordinator-snapshots", look_at_snapshots, _snapshots),
    Target("catalogue-records", look_at_catalogue, _catalogue_records),
    Target("security-log", look_at_security_log, _security_records),
    Target("consumer-protocol", look_at_consumer_protocol, _members),
]
