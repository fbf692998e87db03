"""What clients are told of the brokers on one store: where the next owner is, and which epoch the present one has."""

import pytest
from backed_up import restored_copy
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership.other_nodes import (
    FORMER_MS,
    LEASES_BETWEEN,
    MAX_NODES,
    MISSED,
    Presence,
    told_addresses,
)
from fencepost.broker.ownership.owner import InStore
from fencepost.broker.topics.topics import LAST_MINUTE, SKIPPED_LEADER_EPOCHS
from fencepost.effects.objects import Refused
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.effects.simulated.rng import SeededRng
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import DescribeClusterRequest, MetadataRequest
from fencepost.protocol.messages.offsets import OffsetForLeaderEpochRequest
from fencepost.storage.objects import format as form
from fencepost.storage.objects.restoring import Restoring
from produce_requests import answers, batch, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker

LEASE_MS = 6000
NAMED = 12  # the newest version of Fetch that names topics
RESTORED_MS = 1_795_000_000_000
OWNER, OTHER = (1, "127.0.0.1", 9092), (2, "10.0.0.2", 9094)


def settings(node: int = 1, **more: object) -> BrokerSettings:
    return BrokerSettings(node_id=node, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1, **more)


def serve(objects: SimulatedObjects, node: int = 1, **more: object) -> SimulatedBroker:
    return SimulatedBroker(settings(node, **more), in_store=InStore(objects, lambda seconds: None))


def waiting(objects: SimulatedObjects, node: int = 2, addresses=(("PLAINTEXT", *OTHER[1:]),)) -> Presence:
    """Another broker that waits. Its tell() is called by the test."""
    return Presence(objects.client(), node, addresses, b"12345678", LEASE_MS)


def nodes(broker: SimulatedBroker, topics: list[str] | None) -> list[tuple[int, str, int]]:
    """Return the brokers that Metadata names."""
    wanted = None if topics is None else [MetadataRequest.Topic(name=name) for name in topics]
    found = broker.ask(MetadataRequest(topics=wanted))
    assert found.controller_id == broker.settings.node_id
    return [(each.node_id, each.host, each.port) for each in found.brokers]


def leader_epoch(broker: SimulatedBroker) -> int:
    (topic,) = broker.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="t")])).topics
    return int(topic.partitions[0].leader_epoch)


def end_of_epoch(broker: SimulatedBroker, epoch: int) -> tuple[int, int]:
    """Return what OffsetForLeaderEpoch answers: (leader epoch, end offset)."""
    asked = OffsetForLeaderEpochRequest.Topic.Partition(partition=0, leader_epoch=epoch)
    named = OffsetForLeaderEpochRequest.Topic(topic="t", partitions=[asked])
    (part,) = broker.ask(OffsetForLeaderEpochRequest(topics=[named])).topics[0].partitions
    return part.leader_epoch, part.end_offset


@pytest.mark.parametrize("topics", [["t"], None], ids=["of a topic", "of all topics"])
def test_metadata_for_topics_lists_the_owner_and_the_waiting_broker(topics):
    objects = SimulatedObjects()
    with serve(objects) as owner:
        owner.ask(create("t"))
        assert nodes(owner, topics) == [OWNER]
        waiting(objects).tell(1, 0)
        owner.wait(13)
        assert nodes(owner, topics) == [OWNER, OTHER]


def test_metadata_for_no_topics_lists_only_the_owner():
    """Admin clients send this request to learn which brokers to ask for all groups. A waiting broker answers no such
    request.
    """
    objects = SimulatedObjects()
    with serve(objects) as owner:
        waiting(objects).tell(1, 0)
        owner.wait(13)
        assert nodes(owner, []) == [OWNER]


@pytest.mark.parametrize("fenced", [True, False])
def test_describe_cluster_lists_a_waiting_broker_only_with_fenced_brokers(fenced):
    objects = SimulatedObjects()
    with serve(objects) as owner:
        waiting(objects).tell(1, 0)
        owner.wait(13)
        found = owner.ask(DescribeClusterRequest(include_fenced_brokers=fenced)).brokers
        told = [((each.broker_id, each.host, each.port), each.is_fenced) for each in found]
        assert told == [(OWNER, False), (OTHER, True)][: 1 + fenced]


def test_a_waiting_broker_that_stops_renewing_its_object_in_the_store_is_not_listed():
    objects = SimulatedObjects()
    other = waiting(objects)
    with serve(objects) as owner:
        for beat in range(4):
            other.tell(1, beat * 2 * LEASE_MS)
            owner.wait(2 * LEASE_MS / 1000)
        assert nodes(owner, None) == [OWNER, OTHER]
        owner.wait((MISSED - 1) * 2 * LEASE_MS / 1000)
        assert nodes(owner, None) == [OWNER, OTHER]
        owner.wait(2 * 2 * LEASE_MS / 1000)
        assert nodes(owner, None) == [OWNER]


def test_a_waiting_broker_is_listed_only_if_it_has_the_clients_listener():
    objects = SimulatedObjects()
    with serve(objects) as owner:
        waiting(objects, addresses=(("SSL", "10.0.0.2", 1), ("PLAINTEXT", "10.0.0.2", 2))).tell(1, 0)
        waiting(objects, 3, addresses=(("SSL", "10.0.0.3", 1),)).tell(1, 0)
        owner.wait(13)
        assert nodes(owner, None) == [OWNER, (2, "10.0.0.2", 2)]


@pytest.mark.parametrize(
    "content", [b"", b"FPOW of something else entirely", form.pack_claim(form.Claim(0, 2, (), b""))]
)
def test_a_malformed_object_of_a_waiting_broker_is_ignored(content):
    objects = SimulatedObjects()
    with serve(objects) as owner:
        waiting(objects).tell(1, 0)
        objects.content[form.waiting_name(3)] = content
        owner.wait(13)
        assert nodes(owner, None) == [OWNER, OTHER]


def test_clients_are_not_told_of_a_broker_with_the_owners_node_id(caplog):
    objects = SimulatedObjects()
    with serve(objects) as owner:
        waiting(objects, node=1).tell(1, 0)
        owner.wait(13)
        assert nodes(owner, None) == [OWNER]
    assert "node.id 1 is the owner's" in caplog.text


def test_clients_are_not_told_of_a_broker_that_listens_on_every_interface(caplog):
    objects = SimulatedObjects()
    every, chosen, named = settings(
        listeners=("0.0.0.0:9092", "A://10.0.0.1:0", "B://10.0.0.1:9093"),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "A:PLAINTEXT", "B:PLAINTEXT"),
    ).served_listeners
    assert told_addresses([every, chosen]) == ()
    assert told_addresses([every, named]) == (("B", "10.0.0.1", 9093),)
    waiting(objects, addresses=()).tell(1, 0)
    assert not objects.content
    assert "set advertised.listeners" in caplog.text


def test_a_waiting_broker_has_its_address_in_the_store_until_it_is_the_owner():
    objects = SimulatedObjects()
    first = serve(objects)
    first.abandon()
    seen = objects.client()
    second = serve(seen, 2)
    assert ("put", form.waiting_name(2)) in seen.calls
    second.wait(1)
    assert form.waiting_name(2) not in objects.content
    claim = form.read_claim(2, objects.content[form.claim_name(2)])
    assert (claim.node, claim.addresses) == (2, (("PLAINTEXT", "127.0.0.1", 9092),))
    second.stop()


def test_a_waiting_broker_does_not_repeat_refused_puts_sooner_than_accepted_ones():
    """A policy may allow only creates. Each refused attempt costs as much as one that succeeds."""

    def refuse_puts(call: str, name: str) -> None:
        if call == "put":
            raise Refused(name, "403", "give it the rights")

    presence = waiting(SimulatedObjects())
    presence._objects.before_each = refuse_puts
    for now_ms in range(0, 60_000, LEASE_MS // 12):
        presence.tell(1, now_ms)
    puts = [name for call, name in presence._objects.calls if call == "put"]
    assert len(puts) == 60_000 / (LEASES_BETWEEN * LEASE_MS)


def test_a_former_owner_is_listed_from_the_first_answer_on_for_fifteen_minutes():
    """librdkafka finds the new coordinator of a group only while Metadata lists the old one, or it forgets it."""
    objects = SimulatedObjects()
    serve(objects).abandon()
    with serve(objects, 2) as owner:
        first, second = (1, "127.0.0.1", 9092), (2, "127.0.0.1", 9092)
        assert nodes(owner, None) == [second, first]
        assert nodes(owner, []) == [second]
        owner.wait(FORMER_MS / 1000 - 30)
        assert nodes(owner, None) == [second, first]
        owner.wait(60)
        assert nodes(owner, None) == [second]


def test_a_former_owner_that_waits_again_is_listed_once_with_its_new_address():
    objects = SimulatedObjects()
    serve(objects).abandon()
    with serve(objects, 2) as owner:
        waiting(objects, 1).tell(2, 0)
        owner.wait(13)
        assert nodes(owner, None) == [(2, "127.0.0.1", 9092), (1, *OTHER[1:])]


def test_owners_of_several_epochs_are_listed_each_once():
    objects = SimulatedObjects()
    for node in (3, 4, 3, 2):
        serve(objects, node).abandon()
    with serve(objects, 2) as owner:
        assert [node for node, _, _ in nodes(owner, None)] == [2, 3, 4]


@pytest.mark.parametrize("content", [None, b"", b"FPOC of something else"], ids=["lost", "empty", "malformed"])
def test_a_former_owner_whose_claim_cannot_be_read_is_not_listed(content):
    objects = SimulatedObjects()
    for node in (1, 3):
        serve(objects, node).abandon()
    if content is None:
        del objects.content[form.claim_name(2)]
    else:
        objects.content[form.claim_name(2)] = content
    with serve(objects, 2) as owner:
        assert [node for node, _, _ in nodes(owner, None)] == [2, 1]


def test_an_owner_does_not_send_clients_away_to_a_former_owner():
    objects = SimulatedObjects()
    serve(objects).abandon()
    with serve(objects, 2) as owner:
        assert owner.broker.other_nodes.alive() == []  # clients are sent away only if this names a broker


def test_objects_of_brokers_that_are_gone_are_removed_and_hide_no_waiting_broker():
    """Metadata lists at most MAX_NODES waiting brokers. Replaced machines may leave as many objects, with lower node
    ids.
    """
    objects = SimulatedObjects()
    for node in range(2, 2 + MAX_NODES):
        waiting(objects, node).tell(1, 0)
    late = waiting(objects, 99)
    with serve(objects) as owner:
        for beat in range(6):
            late.tell(1, beat * 2 * LEASE_MS)
            owner.wait(2 * LEASE_MS / 1000)
        assert nodes(owner, None) == [OWNER, (99, *OTHER[1:])]
    assert [name for name in objects.content if name.startswith(form.WAITING)] == [form.waiting_name(99)]


def test_the_leader_epoch_is_the_owners_epoch_and_an_older_or_newer_one_is_refused():
    objects = SimulatedObjects()
    first = serve(objects)
    first.ask(create("t"))
    assert answers(first.ask(produce("t", batch(3)), 11)) == [(ErrorCode.NONE, 0)]
    assert leader_epoch(first) == 1
    first.abandon()
    second = serve(objects, 2)
    second.ask(create("u"))
    assert leader_epoch(second) == 2
    assert {each.leader_epoch for t in second.broker.topics.by_name.values() for each in t.partitions} == {2}
    epochs = {known: fetched(second.ask(fetch("t", leader_epoch=known), NAMED)).error_code for known in (-1, 1, 2, 3)}
    assert epochs == {
        -1: ErrorCode.NONE,
        1: ErrorCode.FENCED_LEADER_EPOCH,
        2: ErrorCode.NONE,
        3: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
    assert [end_of_epoch(second, epoch) for epoch in (0, 1, 2, 3)] == [(0, 3), (1, 3), (2, 3), (-1, -1)]
    second.stop()


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [(0, 1 + SKIPPED_LEADER_EPOCHS), (RESTORED_MS, RESTORED_MS // 60_000), (1 << 62, LAST_MINUTE)],
    ids=["clock at 1970", "clock of today", "clock far ahead"],
)
def test_a_restored_directory_has_a_later_leader_epoch_than_its_store_and_keeps_it(now_ms, expected):
    objects = SimulatedObjects()
    with serve(objects) as owner:
        owner.ask(create("t"))
        owner.wait(1)
        disk = type(owner.disk)(history=False)
        Restoring(objects.client(), disk, SimulatedClock(), SeededRng(2), ".fencepost", lambda error, n: None).run()
        assert leader_epoch(owner) == 1
    plain = SimulatedBroker(settings(), disk=disk, now_ms=now_ms)
    assert leader_epoch(plain) == expected
    again = plain.again()
    assert leader_epoch(again) == expected
    again.stop()


@pytest.mark.parametrize("into_a_store", [False, True])
def test_a_restored_directory_has_a_later_leader_epoch_than_all_owners_since(into_a_store):
    """Clients that went on with a later owner of the store ignore a lower leader epoch, and would ask for ever."""
    objects = SimulatedObjects()
    owner = serve(objects)
    owner.ask(create("t"))
    owner.wait(1)
    disk = type(owner.disk)(history=False)
    Restoring(objects.client(), disk, SimulatedClock(), SeededRng(2), ".fencepost", lambda error, n: None).run()
    for _ in range(6):
        owner.stop()
        owner = serve(objects)
    known = leader_epoch(owner)
    owner.stop()
    another = InStore(SimulatedObjects(), lambda seconds: None) if into_a_store else None
    with SimulatedBroker(settings(), disk=disk, in_store=another) as restored:
        first = leader_epoch(restored)
    assert first > known
    with SimulatedBroker(settings(), disk=disk, in_store=another) as again:
        assert leader_epoch(again) == first + into_a_store  # in a store, each start begins a new epoch


@pytest.mark.parametrize("owners", [1, 6])
def test_a_backup_from_before_the_store_gets_a_later_leader_epoch_than_its_owners(owners):
    """The directory was adopted after the backup, so nothing in the backup says what its clients know."""
    with SimulatedBroker(settings(), disk=SimulatedDisk()) as plain:
        plain.ask(create("t"))
        backup = restored_copy(plain.disk, plain.settings.log_dir)
    objects, disk, known = SimulatedObjects(), plain.disk, 0
    for _ in range(owners):
        with SimulatedBroker(settings(), disk=disk, in_store=InStore(objects, lambda seconds: None)) as owner:
            known = leader_epoch(owner)
            disk = owner.disk
    assert known == 1 + owners  # the first is above the directory's own starts
    with SimulatedBroker(settings(), disk=backup) as restored:
        assert leader_epoch(restored) > known


def test_a_backup_restored_twice_has_a_later_leader_epoch_than_the_first_had_owners():
    """The second restore knows nothing of the first one, whose data was put into a store that had owners."""
    with SimulatedBroker(settings(), disk=SimulatedDisk()) as plain:
        plain.ask(create("t"))
        first, second = (restored_copy(plain.disk, plain.settings.log_dir) for _ in range(2))
    objects, owners, known = SimulatedObjects(), 3, 0
    for _ in range(owners):
        store = InStore(objects, lambda seconds: None)
        with SimulatedBroker(settings(), disk=first, in_store=store, now_ms=RESTORED_MS) as owner:
            assert leader_epoch(owner) > known
            known, first = leader_epoch(owner), owner.disk
    with SimulatedBroker(settings(), disk=second, now_ms=RESTORED_MS + owners * 60_000) as again:
        assert leader_epoch(again) > known


def test_the_leader_epoch_of_a_directory_that_was_never_in_a_store_stays_0():
    with SimulatedBroker(settings()) as broker:
        broker.ask(create("t"))
        assert leader_epoch(broker) == 0
        again = broker.again()
        assert leader_epoch(again) == 0
        assert nodes(again, None) == [OWNER]
        again.stop()
