"""What accumulates over many requests: everything that clients can have stored, as large as it may be, until the broker
refuses more; then a restart, in order and after a power cut, which opens and has all of it.

One row for each API that stores something by itself. A request that is within all bounds says nothing about what a
thousand of them leave: the catalogue of a broker once grew beyond what its own start would read.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import offset_requests
import pytest
from acl_client import creating, guarded
from config_requests import APPEND, BROKER, SET, TOPIC
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.quotas import quota_changes
from fencepost.broker.topics.names import INTERNAL, LEDGER_TOPIC, OFFSETS_TOPIC, PRODUCERS_TOPIC, SHARE_STATE_TOPIC
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from fencepost.protocol.messages.scram_users import AlterUserScramCredentialsRequest
from fencepost.protocol.messages.topics import CreatePartitionsRequest
from produce_requests import create
from quota_client import altering, entry
from simulated_broker import SimulatedBroker
from txn_client import Txn

GROUP = 32  # the resource type
KIB, MIB = 1 << 10, 1 << 20
MAX_TIMES = 2_000
NOT_NEEDED = {LEDGER_TOPIC, PRODUCERS_TOPIC, SHARE_STATE_TOPIC}  # groups and transactions use none of these
REPLICAS = "leader.replication.throttled.replicas"
LONGEST_VALUE = "0:1," + "1" * (32_767 - 6) + ":1"
LONGEST_NAME = "x" * 1_000


def long_name(number: int, length: int) -> str:
    """Return a name of this length, another one for each number."""
    return f"{number:06}".ljust(length, "n")


def topics_with_settings(number: int) -> Any:
    return create(long_name(number, 249), leader_replication_throttled_replicas=LONGEST_VALUE)


def partitions_of_topics(number: int) -> Any:
    return create(long_name(number, 249), 500)


def more_partitions(number: int) -> Any:
    topic = CreatePartitionsRequest.Topic(name="t", count=500 * (number + 1))
    return CreatePartitionsRequest(topics=[topic], timeout_ms=1)


def changing(kind: int, name: str, *changes: tuple[str, int, str]) -> Any:
    made = IncrementalAlterConfigsRequest.Resource
    configs = [made.Config(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    return IncrementalAlterConfigsRequest(resources=[made(resource_type=kind, resource_name=name, configs=configs)])


def longer_lists(number: int) -> Any:
    entries = ",".join(f"{number * 100 + each}:1" for each in range(100))
    return changing(TOPIC, "t", (REPLICAS, APPEND, entries))


def replaced_lists(number: int) -> Any:
    made = AlterConfigsRequest.Resource
    config = made.Config(name=REPLICAS, value=LONGEST_VALUE[: 2_000 * number].rstrip(":") + ":1" if number else "0:1")
    return AlterConfigsRequest(resources=[made(resource_type=TOPIC, resource_name="t", configs=[config])])


def settings_of_the_broker(number: int) -> Any:
    names = ("sasl.kerberos.principal.to.local.rules", "sasl.kerberos.kinit.cmd", "sasl.kerberos.service.name")
    longest = [(name, SET, "x" * 32_767) for name in names[1:]]
    return changing(BROKER, "1", (names[0], APPEND, long_name(number, 1_000)), *longest)


def settings_of_groups(number: int) -> Any:
    return changing(GROUP, long_name(number, 32_000), ("consumer.heartbeat.interval.ms", SET, "6000"))


def rules(number: int) -> Any:
    name = long_name(number, 995)
    longest = [f"allow User:{name} READ TOPIC ^ {LONGEST_NAME} @{'h' * 990}{each}" for each in range(50)]
    return creating(*longest)


def users(number: int) -> Any:
    made = AlterUserScramCredentialsRequest
    put = [
        made.Upsertion(
            name=long_name(number * 50 + each, 1_000),
            mechanism=1 + each % 2,
            iterations=16_384,
            salt=bytes(1_024),
            salted_password=b"p" * 1_024,
        )
        for each in range(50)
    ]
    return made(deletions=[], upsertions=put)


def quotas(number: int) -> Any:
    rates = dict.fromkeys(("producer_byte_rate", "consumer_byte_rate", "request_percentage"), 5.0)
    names = [long_name(number * 50 + each, 1_000) for each in range(50)]
    return altering(*[entry(f"user={name} client-id={LONGEST_NAME}", **rates) for name in names])


class Row(NamedTuple):
    """An API that stores something. ask: returns the request of a number. refused_with: the error when its limit is
    reached. limits: settings that are low enough for a test.
    """

    ask: Callable[[int], Any]
    refused_with: ErrorCode
    limits: dict[str, Any]


POLICY, INVALID_CONFIG = ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_CONFIG
ROWS = {
    "CreateTopics, settings": Row(topics_with_settings, POLICY, {"configs_max_bytes": 2 * MIB}),
    "CreateTopics, partitions": Row(partitions_of_topics, POLICY, {"max_partitions": 3_000}),
    "CreatePartitions": Row(more_partitions, POLICY, {"max_partitions": 3_000}),
    "IncrementalAlterConfigs of a topic": Row(longer_lists, INVALID_CONFIG, {}),
    "AlterConfigs of a topic": Row(replaced_lists, POLICY, {"configs_max_bytes": 20 * KIB}),
    "IncrementalAlterConfigs of a broker": Row(settings_of_the_broker, INVALID_CONFIG, {}),
    "IncrementalAlterConfigs of groups": Row(settings_of_groups, POLICY, {"group_metadata_max_bytes": MIB}),
    "CreateAcls": Row(rules, POLICY, {"max_acls": 1_000}),
    "AlterUserScramCredentials": Row(users, POLICY, {"max_users": 200}),
    "AlterClientQuotas": Row(quotas, POLICY, {}),
}


def codes_in(message: Any) -> set[int]:
    """Return all error codes in an answer."""
    found = set()
    for name in message.__slots__:
        value = getattr(message, name)
        if name == "error_code":
            found.add(value)
        elif isinstance(value, list):
            found |= {code for each in value if hasattr(each, "__slots__") for code in codes_in(each)}
    return found


def stored(world: SimulatedBroker) -> list[Any]:
    """Return all that clients can have stored, as the broker has it now."""
    topics, security = world.broker.topics, world.broker.security_log.state
    return [
        {name: (topic.id, len(topic.partitions), dict(topic.configs)) for name, topic in topics.by_name.items()},
        {each: dict(configs) for each, configs in topics.catalogue.broker_configs.items()},
        {each: dict(configs) for each, configs in topics.catalogue.group_configs.items()},
        set(security.authorizer),
        {name: list(security.users.of(name)) for name in security.users.names},
        {each: dict(security.quotas.of(each)) for each in security.quotas},
    ]


def check_that_groups_and_transactions_work(world: SimulatedBroker) -> None:
    """Check that the broker can still write its own state, although clients have stored all that they may."""
    assert offset_requests.commit(world, "g", "t", {0: 1}) == [ErrorCode.NONE]
    assert Txn(world).init() == ErrorCode.NONE


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_entries_stored_up_to_a_limit_survive_restarts_and_the_limit_still_holds(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """ROWS has each API that stores entries, with the limit that refuses more and its error code."""
    monkeypatch.setattr(quota_changes, "MAX_ENTITIES", 500)
    row = ROWS[name]
    world = SimulatedBroker(guarded(**row.limits))
    world.ask(create("t"))
    before = stored(world)
    for number in range(MAX_TIMES):
        codes = codes_in(world.ask(row.ask(number)))
        if codes - {ErrorCode.NONE}:
            break
        if number % 20 == 19:
            world.wait(1)
    assert codes - {ErrorCode.NONE} == {row.refused_with}
    assert number > 0, "the first request is within all bounds"
    kept = stored(world)
    assert kept != before
    again = world.after_power_cut()
    assert stored(again) == kept
    assert codes_in(again.ask(row.ask(number))) - {ErrorCode.NONE} == {row.refused_with}, "the bound counts on"
    check_that_groups_and_transactions_work(again)
    kept = stored(again)
    with again.again() as third:
        assert stored(third) == kept
        assert codes_in(third.ask(create("one"))) <= {ErrorCode.NONE, POLICY}, "and it serves"


@pytest.mark.slow
def test_a_broker_starts_with_more_partitions_and_settings_than_lowered_limits_allow() -> None:
    world = SimulatedBroker(BrokerSettings())
    for number in range(5):
        assert codes_in(world.ask(topics_with_settings(number))) == {ErrorCode.NONE}
    kept = stored(world)
    with world.again(BrokerSettings(configs_max_bytes=0, max_partitions=0)) as later:
        assert stored(later) == kept


def test_internal_topics_are_created_beyond_max_partitions_and_configs_max_bytes() -> None:
    with SimulatedBroker(BrokerSettings(configs_max_bytes=0, max_partitions=1)) as world:
        world.ask(create("t"))
        check_that_groups_and_transactions_work(world)
        assert set(world.broker.topics.by_name) == {"t", *INTERNAL - NOT_NEEDED}


def test_settings_of_internal_topics_do_not_count_towards_configs_max_bytes() -> None:
    room = len("retention.ms") + len("1")
    with SimulatedBroker(BrokerSettings(configs_max_bytes=room)) as world:
        world.ask(create("t"))
        check_that_groups_and_transactions_work(world)
        assert codes_in(world.ask(changing(TOPIC, OFFSETS_TOPIC, ("segment.ms", SET, "86400000")))) == {ErrorCode.NONE}
        with world.again() as again:
            assert codes_in(again.ask(changing(TOPIC, "t", ("retention.ms", SET, "1")))) == {ErrorCode.NONE}
            assert codes_in(again.ask(changing(TOPIC, "t", ("retention.ms", SET, "10")))) == {POLICY}
