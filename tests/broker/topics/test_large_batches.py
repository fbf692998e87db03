"""The broker's own logs: what one commits, its reader takes, however large it is."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from fencepost.broker.broker import Broker
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.security.acl_records import acl_added
from fencepost.broker.security.acls import AclBinding, Operation, PatternType, Permission, ResourceType
from fencepost.broker.share.records import Kind, read_update, record_key, update_value
from fencepost.broker.share.values import SharePartitionKey, State, StateBatch, Update
from fencepost.broker.topics.catalogue import group_configs_changed
from fencepost.broker.topics.internal_topic import InternalTopic
from fencepost.cli import main
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.protocol.batches import Batch
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.records import DECOMPRESSED_LIMIT_BYTES, Record
from left_directory import left_in
from simulated_broker import SimulatedBroker

NAME = "__share_group_state"  # its coordinator ignores changes of share partitions that it does not know
KEY = record_key(Kind.UPDATE, SharePartitionKey("g", bytes(16), 0))
SMALL = BrokerSettings(log_dir="/d", log_checkpoint_interval_ms=300, journal_max_bytes=48 << 20)


def topic_of(broker: Broker) -> InternalTopic:
    return broker.shared.internal_topic(NAME, 1, {"cleanup.policy": "compact"})


def to_catalogue(broker: Broker, text: str) -> None:
    broker.topics.commit([group_configs_changed("g", {"x": text})], [])


def of_catalogue(broker: Broker) -> str:
    return broker.topics.catalogue.group_configs["g"]["x"]


def rule_of(text: str) -> AclBinding:
    place = (ResourceType.TOPIC, PatternType.LITERAL, text, "User:a", "*")
    return AclBinding(*place, Operation.READ, Permission.ALLOW)


def to_security_log(broker: Broker, text: str) -> None:
    broker.security_log.commit([acl_added(rule_of(text))])


def of_security_log(broker: Broker) -> str:
    (rule,) = broker.security_log.state.authorizer
    return rule.resource_name


def to_internal_topic(broker: Broker, text: str) -> None:
    topic = topic_of(broker)
    topic.ensure()
    update = Update(0, 0, [StateBatch(0, 0, State.AVAILABLE, 1, text)])
    topic.commit([topic.part(0, [(KEY, update_value(update, 0))], now_ms=1)])


def of_internal_topic(broker: Broker) -> str:
    seen: list[bytes] = []

    def apply(_partition: int, _batch: Batch, contents: Iterable[Record]) -> None:
        seen.extend(record.value for record in contents if record.value is not None)

    topic_of(broker).load(apply)
    return read_update(seen[-1]).batches[0].member


LOGS = {
    "catalogue": (to_catalogue, of_catalogue),
    "security": (to_security_log, of_security_log),
    "internal": (to_internal_topic, of_internal_topic),
}


def new_world() -> SimulatedBroker:
    return SimulatedBroker(SMALL, disk=SimulatedDisk(history=False))


@pytest.fixture
def world() -> Iterator[SimulatedBroker]:
    with new_world() as made:
        yield made


def largest(world: SimulatedBroker) -> str:
    """Wait until the journal has room for its largest append. Return a text that takes nearly as many bytes, more than
    the limit of decompressed bytes.
    """
    store = world.broker.store
    size = store.largest_append_bytes - 10_000
    assert size > DECOMPRESSED_LIMIT_BYTES + 10_000
    for _ in range(100):
        if store.admits(size + 5_000, internal=True):
            return "x" * size
        world.wait(1)
    raise AssertionError("no journal file of that size is made")


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("flushed", [True, False])
def test_the_largest_batch_a_coordinator_can_commit_is_read_back_after_a_power_cut(
    tmp_path: Path, name: str, flushed: bool
) -> None:
    world = new_world()
    commit, found = LOGS[name]
    text = largest(world)
    commit(world.broker, text)
    world.wait(60 if flushed else 0.01)
    again = world.after_power_cut()
    assert found(again.broker) == text
    directory = left_in(tmp_path / "d", again.disk, "/d")
    again.stop()
    verified = CliRunner().invoke(main, ["log", "verify", str(directory)])
    assert verified.exit_code == 0, verified.output


@pytest.mark.slow
def test_a_coordinator_batch_too_large_for_the_journal_raises_and_is_not_applied(world: SimulatedBroker) -> None:
    text = "x" * (world.broker.store.largest_append_bytes + 1)
    before = world.broker.store.last_unit
    codes: dict[Callable[[Broker, str], None], ErrorCode] = {
        to_catalogue: ErrorCode.KAFKA_STORAGE_ERROR,
        to_security_log: ErrorCode.KAFKA_STORAGE_ERROR,
        to_internal_topic: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
    for commit, code in codes.items():
        with pytest.raises(KafkaError) as refused:
            commit(world.broker, text)
        assert refused.value.code is code
    assert world.broker.store.last_unit == before + 2, "only the two logs were made"
    assert "g" not in world.broker.topics.catalogue.group_configs
