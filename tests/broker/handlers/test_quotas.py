"""AlterClientQuotas, DescribeClientQuotas through a whole broker; what Kafka answers is in tests/conformance."""

import logging

import pytest
from acl_client import creating, guarded
from fencepost.broker.handlers import quotas
from fencepost.broker.quotas import quota_changes
from fencepost.protocol.errors import ErrorCode
from quota_client import altered, altering, described, describing, entry, set_quota
from simulated_broker import SimulatedBroker

OK, INVALID, POLICY = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION
FORBIDDEN, NO_ROOM = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.KAFKA_STORAGE_ERROR


def test_quotas_are_set_described_and_removed() -> None:
    with SimulatedBroker() as broker:
        set_quota(broker, "user=alice", producer_byte_rate=1000, request_percentage=12.5)
        set_quota(broker, "client-id=app user=<default>", consumer_byte_rate=7)
        set_quota(broker, "ip=0:0:0:0:0:0:0:1", connection_creation_rate=3)
        assert described(broker) == {
            "user=alice": {"producer_byte_rate": 1000, "request_percentage": 12.5},
            "client-id=app user=<default>": {"consumer_byte_rate": 7},
            "ip=::1": {"connection_creation_rate": 3},
        }
        assert described(broker, ("ip", 0, "0:0::1")).keys() == {"ip=::1"}
        set_quota(broker, "user=alice", producer_byte_rate=None, consumer_byte_rate=None)
        assert described(broker, ("user", 0, "alice")) == {"user=alice": {"request_percentage": 12.5}}
        assert not broker.broker.metrics.failures


@pytest.mark.slow
@pytest.mark.parametrize("flushed", [False, True])
def test_quotas_survive_a_restart_and_a_power_cut(flushed: bool) -> None:
    broker = SimulatedBroker()
    set_quota(broker, "user=alice", producer_byte_rate=1000, consumer_byte_rate=5)
    set_quota(broker, "client-id=<default>", request_percentage=0.5)
    if flushed:
        broker.wait(60)
    set_quota(broker, "user=alice", consumer_byte_rate=None)
    expected = {"user=alice": {"producer_byte_rate": 1000}, "client-id=<default>": {"request_percentage": 0.5}}
    with broker.after_power_cut() as unplugged:
        assert described(unplugged) == expected
        with unplugged.again() as restarted:
            assert described(restarted) == expected


def test_an_unchanged_quota_is_not_written_and_a_request_is_written_in_one_unit() -> None:
    with SimulatedBroker() as broker:
        set_quota(broker, "user=alice", producer_byte_rate=1)
        store = broker.broker.store
        before = store.last_unit
        set_quota(broker, "user=alice", producer_byte_rate=1, consumer_byte_rate=None)
        assert store.last_unit == before
        assert altered(broker, entry("user=bob", producer_byte_rate=1), entry("user=carol", request_percentage=2)) == [
            OK,
            OK,
        ]
        assert store.last_unit == before + 1


def test_many_quota_changes_are_split_into_several_units() -> None:
    with SimulatedBroker() as broker:
        set_quota(broker, "user=alice", producer_byte_rate=1)
        before = broker.broker.store.last_unit
        names = [f"user=u{number}" for number in range(quotas.CHANGES_AT_ONCE + 1)]
        assert altered(broker, *[entry(name, producer_byte_rate=5) for name in names]) == [OK] * len(names)
        assert broker.broker.store.last_unit == before + 2
        assert described(broker).keys() == {"user=alice", *names}


def test_describing_quotas_needs_describe_configs_and_setting_them_alter_configs() -> None:
    with SimulatedBroker(guarded()) as broker:
        set_quota(broker, "user=alice", producer_byte_rate=1)
        broker.ask(creating("allow User:ANONYMOUS DESCRIBE_CONFIGS CLUSTER = kafka-cluster"))
        with broker.again(guarded(super_users="User:admin")) as reading:
            assert len(described(reading)) == 1
            assert altered(reading, entry("user=bob", producer_byte_rate=1)) == [FORBIDDEN]
            assert len(described(reading)) == 1
    with SimulatedBroker(guarded(super_users="")) as closed:
        answer = closed.ask(describing())
        assert (answer.error_code, answer.entries) == (FORBIDDEN, None)


def test_a_full_journal_refuses_quota_changes_with_a_retriable_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with SimulatedBroker() as broker:
        set_quota(broker, "user=alice", producer_byte_rate=1)
        with monkeypatch.context() as full:
            full.setattr(broker.broker.store, "admits", lambda *_, **__: False)
            asked = [entry("user=alice", producer_byte_rate=2), entry("user=alice client-id=x", no_such_rate=2)]
            assert altered(broker, *asked) == [NO_ROOM, INVALID]
        assert described(broker) == {"user=alice": {"producer_byte_rate": 1}}
        set_quota(broker, "user=alice", producer_byte_rate=2)


def test_the_number_of_entities_with_quotas_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_changes, "MAX_ENTITIES", 3)
    with SimulatedBroker() as broker:
        asked = [entry(f"user=u{number}", producer_byte_rate=1) for number in range(5)]
        assert altered(broker, *asked) == [OK] * 3 + [POLICY] * 2
        assert (
            altered(broker, entry("user=u1", request_percentage=1), entry("user=u2", producer_byte_rate=9)) == [OK] * 2
        )
        set_quota(broker, "user=u0", producer_byte_rate=None)
        assert altered(broker, *asked[3:]) == [OK, POLICY]


def test_a_quota_change_is_logged_with_user_and_address(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), SimulatedBroker() as broker:
        set_quota(broker, "user=alice", producer_byte_rate=1, consumer_byte_rate=1)
        broker.ask(altering(entry("user=bob", producer_byte_rate=1), validate_only=True))
        (line,) = [record.getMessage() for record in caplog.records if "quotas changed" in record.getMessage()]
        assert line.startswith("2 quotas changed by User:ANONYMOUS from ")
