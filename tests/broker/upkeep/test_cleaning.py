"""Compaction in a running broker: what goes wrong in one log stays there."""

import errno
import logging
import struct

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.effects.disk import DirectoryMoved
from fencepost.protocol.messages.configs import IncrementalAlterConfigsRequest
from fencepost.storage.cleaning.compaction import Compaction
from produce_requests import answers, batch, create, idempotent, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OFTEN = BrokerSettings(log_cleaner_backoff_ms=300, log_checkpoint_interval_ms=300)


def feed(client: SimulatedClient, topic: str, times: int) -> None:
    for _ in range(times):
        assert answers(client.ask(produce(topic, batch(key=b"k", value=b"v" * 200))))[0][0] == 0
        client.broker.wait(0.4)


def cleaned_offset(broker: SimulatedBroker, topic: str) -> int:
    return broker.broker.topics.by_name[topic].partitions[0].log.cleaned_offset


@pytest.fixture
def begun():
    with SimulatedBroker(OFTEN) as broker:
        compacted = {"cleanup_policy": "compact", "segment_ms": 1000, "min_cleanable_dirty_ratio": 0}
        for name in ("sick", "sound"):
            broker.ask(create(name, **compacted))
        yield broker


def test_an_exception_in_a_compaction_stops_compacting_only_that_log(begun, monkeypatch, caplog):
    original = Compaction.run_slice

    def run_slice(run: Compaction) -> None:
        if run._log.topic == "sick":
            raise struct.error("argument out of range")
        original(run)

    monkeypatch.setattr(Compaction, "run_slice", run_slice)
    client = SimulatedClient(begun)
    with caplog.at_level(logging.ERROR, "fencepost.broker"):
        for _ in range(6):
            feed(client, "sick", 2)
            feed(client, "sound", 2)
    reported = [line for line in caplog.records if "sick-0 is not compacted any more" in line.message]
    assert [line.exc_info is not None for line in reported] == [True]
    assert begun.broker.halted is None
    assert cleaned_offset(begun, "sick") == 0
    assert cleaned_offset(begun, "sound") > 0


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "many"), OSError(errno.EACCES, "no"), MemoryError()])
def test_a_compaction_that_lacks_memory_or_descriptors_is_retried_later(begun, monkeypatch, caplog, error):
    original, left = Compaction.run_slice, [error] * 2

    def run_slice(run: Compaction) -> None:
        if left:
            raise left.pop()
        original(run)

    monkeypatch.setattr(Compaction, "run_slice", run_slice)
    client = SimulatedClient(begun)
    with caplog.at_level(logging.WARNING, "fencepost.broker"):
        feed(client, "sound", 10)
    assert caplog.text.count("sound-0 is not compacted now, a later run tries again") == 2
    assert begun.broker.halted is None
    assert begun.broker.topics.by_name["sound"].partitions[0].log.offline is None
    assert cleaned_offset(begun, "sound") > 0


def test_a_failed_sync_in_a_compaction_halts_the_broker_even_with_enomem(begun, monkeypatch):
    def sync() -> None:
        raise OSError(errno.ENOMEM, "in a sync")

    def run_slice(run: Compaction) -> None:
        run._files._syncs.run(sync)

    monkeypatch.setattr(Compaction, "run_slice", run_slice)
    client = SimulatedClient(begun)
    with pytest.raises(ConnectionError):
        feed(client, "sound", 24)
    assert isinstance(begun.broker.halted, OSError)
    begun.abandon()


@pytest.mark.parametrize("error", [OSError(5, "the disk is gone"), DirectoryMoved("/data")])
def test_a_disk_error_in_a_compaction_halts_the_broker(begun, monkeypatch, error):
    def run_slice(run: Compaction) -> None:
        raise error

    monkeypatch.setattr(Compaction, "run_slice", run_slice)
    client = SimulatedClient(begun)
    with pytest.raises(ConnectionError):
        feed(client, "sound", 24)
    assert begun.broker.halted is error
    assert begun.broker.metrics.failures == []
    begun.abandon()


def test_a_bug_while_expiring_producers_of_one_log_affects_no_other():
    settings = BrokerSettings(producer_id_expiration_ms=5_000, producer_id_expiration_check_interval_ms=1_000)
    with SimulatedBroker(settings) as broker:
        logs = {}
        for name in ("sick", "sound"):
            broker.ask(create(name))
            broker.ask(produce(name, idempotent(0)))
            logs[name] = broker.broker.topics.by_name[name].partitions[0].log
        logs["sick"].producers.expire = lambda *_: 1 / 0
        broker.wait(10)
        assert broker.broker.halted is None
        assert (len(logs["sick"].producers), len(logs["sound"].producers)) == (1, 0)
        assert {type(each) for each in broker.broker.metrics.failures} == {ZeroDivisionError}


def test_a_changed_log_cleaner_interval_takes_effect_during_a_wait():
    with SimulatedBroker(BrokerSettings(log_cleaner_backoff_ms=3_600_000, log_checkpoint_interval_ms=300)) as broker:
        broker.ask(create("t", cleanup_policy="compact", segment_ms=1000, min_cleanable_dirty_ratio=0))
        feed(SimulatedClient(broker), "t", 8)
        broker.wait(100)
        assert cleaned_offset(broker, "t") == 0
        asked = IncrementalAlterConfigsRequest.Resource(
            resource_type=4,
            resource_name="1",
            configs=[
                IncrementalAlterConfigsRequest.Resource.Config(
                    name="log.cleaner.backoff.ms", config_operation=0, value="300"
                )
            ],
        )
        assert broker.ask(IncrementalAlterConfigsRequest(resources=[asked])).responses[0].error_code == 0
        broker.wait(70)
        assert cleaned_offset(broker, "t") > 0
