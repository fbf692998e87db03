"""What a broker has told its clients beside records: whoever takes over its store has it, as a restarted broker has."""

from collections.abc import Callable
from typing import Any

import acl_client
import group_client
import ledger_client
import named_requests
import offset_requests
import pytest
import quota_client
import share_group_requests as share_groups
from config_requests import BROKER, OK, SET, TOPIC, change, describe
from fencepost.broker.ownership.owner import InStore
from fencepost.broker.security.credentials import Mechanism, salted_password
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.scram_users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from produce_requests import batch, produce
from simulated_broker import SimulatedBroker
from txn_client import Txn, state, values

GROUP = 32  # the resource type
SALT = b"0123456789abcdef"
RULE = "allow User:alice READ TOPIC = a"
SETTINGS = acl_client.guarded(
    offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1, group_initial_rebalance_delay_ms=0
)


def user(name: str) -> Any:
    salted = salted_password(Mechanism.SHA_256, b"a secret", SALT, 4096)
    make = AlterUserScramCredentialsRequest.Upsertion
    put = make(name=name, mechanism=1, iterations=4096, salt=SALT, salted_password=salted)
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=[put])


def consumer_beat(broker: SimulatedBroker, member: str, epoch: int) -> Any:
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["a"], "topic_partitions": []}
    asked = ConsumerGroupHeartbeatRequest(
        group_id="consumer", member_id=member, member_epoch=epoch, **(joins if epoch == 0 else {})
    )
    return broker.ask(asked)


def tell_all(broker: SimulatedBroker) -> Txn:
    """Have one of each kind of what a broker keeps. Returns a transaction that is prepared."""
    ledger_client.topics(broker)
    broker.ask(produce("a", batch(3)))
    broker.ask(acl_client.creating(RULE))
    broker.ask(user("alice"))
    quota_client.set_quota(broker, "user=alice", producer_byte_rate=1000)
    assert change(broker, TOPIC, "a", ("retention.ms", SET, "12345678")) == OK
    assert change(broker, BROKER, "", ("log.retention.ms", SET, "23456789")) == OK
    assert change(broker, GROUP, "consumer", ("consumer.session.timeout.ms", SET, "50000")) == OK
    group_client.alone(broker, "classic")
    assert consumer_beat(broker, "m", 0).error_code == 0
    assert share_groups.beat(broker, "s", 0, "share", ("a",)).error_code == 0
    for group, offset in (("classic", 2), ("plain", 3)):
        member = broker.broker.groups.groups[group].members if group == "classic" else {}
        named = {"member_id": next(iter(member)), "generation_id_or_member_epoch": 1} if member else {}
        assert offset_requests.commit(broker, group, "a", {0: offset}, **named) == [0]
    epoch = named_requests.opened(broker, "sensor", a=3)
    named_requests.write(broker, "sensor", epoch, 1, topic="a")
    ended = ledger_client.prepared(broker, "ended", 1)
    assert ledger_client.decide(broker, ended).error_code == 0
    return ledger_client.prepared(broker, "waits", 2)


def facts(broker: SimulatedBroker) -> dict[str, Any]:
    """Return all that clients can ask of this broker."""
    users = broker.ask(DescribeUserScramCredentialsRequest(users=None)).results
    consumers = broker.ask(ConsumerGroupDescribeRequest(group_ids=["consumer"])).groups[0]
    return {
        "rules": acl_client.described(broker),
        "users": [(each.user, each.credential_infos) for each in users],
        "verifier": broker.broker.security_log.state.users.find("alice", Mechanism.SHA_256),
        "quotas": quota_client.described(broker),
        "topic config": {each.name: each.value for each in describe(broker, TOPIC, "a").configs}["retention.ms"],
        "broker config": {each.name: each.value for each in describe(broker, BROKER, "").configs},
        "group config": {each.name: each.value for each in describe(broker, GROUP, "consumer").configs},
        "groups": group_client.listed(broker),
        "classic": group_client.state_of(broker, "classic"),
        "classic generation": broker.broker.groups.groups["classic"].generation,
        "consumer": (consumers.group_state, consumers.group_epoch, [each.member_id for each in consumers.members]),
        "share": share_groups.kept_of_share_groups(broker),
        "offsets": {group: offset_requests.fetch(broker, group, {"a": [0]}) for group in ("classic", "plain")},
        "names": named_requests.described(broker),
        "ledger": (ledger_client.last_number(broker), ledger_client.waiting(broker)),
        "transactions": {name: state(broker, name) for name in ("ended", "waits")},
        "records": values(broker, "a"),
    }


def restarted(broker: SimulatedBroker) -> SimulatedBroker:
    return broker.again()


def after_power_cut(broker: SimulatedBroker) -> SimulatedBroker:
    return broker.after_power_cut()


@pytest.mark.parametrize("then", [restarted, after_power_cut])
def test_rules_groups_ledger_and_transactions_are_there_after_a_restart(then: Callable[..., SimulatedBroker]):
    broker = SimulatedBroker(SETTINGS)
    txn = tell_all(broker)
    told = facts(broker)
    check_kept(then(broker), told, txn)


@pytest.mark.parametrize("with_a_point", [False, True], ids=["rounds alone", "a checkpoint"])
@pytest.mark.parametrize("orderly", [False, True], ids=["killed", "handed over"])
def test_rules_groups_ledger_and_transactions_are_there_after_a_takeover(orderly: bool, with_a_point: bool):
    objects = SimulatedObjects()
    broker = serve(objects)
    txn = tell_all(broker)
    if with_a_point:
        broker.wait(40)
        assert [name for name in objects.content if "/points/" in name]
    told = facts(broker)
    if orderly:
        broker.stop()
    else:
        broker.abandon()
    check_kept(serve(objects), told, txn)


def serve(objects: SimulatedObjects) -> SimulatedBroker:
    """Return a broker on the store, with an empty disk."""
    return SimulatedBroker(SETTINGS, in_store=InStore(objects.client(), lambda seconds: None))


def check_kept(successor: SimulatedBroker, told: dict[str, Any], txn: Txn) -> None:
    """Compare what the successor says with what was told, and end the prepared transaction at it."""
    with successor as broker:
        said = facts(broker)
        assert {key: said[key] for key in told if said[key] != told[key]} == {}
        assert len(told["records"]) == 5  # of three kinds of producers, and not the prepared one's
        assert ledger_client.decide(broker, txn, number=2).error_code == 0
        assert values(broker, "a") == [*told["records"], b"waits"]
