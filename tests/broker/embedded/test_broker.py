"""The broker inside somebody else's process: a guest that can be killed, stopped, moved in time, and leaves nothing."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from eventually import wait_until
from fencepost.broker.config.options import InvalidOption
from fencepost.broker.embedded.broker import Broker, BrokerHaltedError
from fencepost.protocol.batches import walk
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    InitProducerIdRequest,
    TxnTopic,
)
from fencepost.protocol.records import records
from group_client import alone
from group_client import state_of as group_state
from long_runs import first_only
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, list_offsets, produce
from wire_client import Closed, WireClient

pytestmark = pytest.mark.slow


@pytest.fixture
def broker():
    with Broker() as running:
        yield running
        assert not running.failures


def connect(broker, **more):
    return WireClient(broker.host, broker.port, **more)


def now_batch(value=b"v"):
    return batch(timestamp=int(time.time() * 1000), value=value)


def write(broker, topic="t", *, value=b"v"):
    with connect(broker) as client:
        assert answers(client.call(produce(topic, now_batch(value)))) == [(0, pytest.approx(0, abs=10**6))]


def end_of(broker, topic="t"):
    with connect(broker) as client:
        return client.call(list_offsets(topic, -1)).topics[0].partitions[0].offset


def make(broker, topic="t", **configs):
    with connect(broker) as client:
        assert client.call(create(topic, **configs)).topics[0].error_code == 0


def test_an_embedded_broker_keeps_its_free_loopback_port_over_a_restart(broker):
    make(broker)
    write(broker)
    first = broker.bootstrap_servers
    broker.restart()
    assert broker.bootstrap_servers == first == f"127.0.0.1:{broker.port}"
    assert end_of(broker) == 1


async def test_an_embedded_broker_in_async_code_does_not_block_the_callers_loop():
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    async with Broker() as broker:
        during_start = len(ticks)
        await asyncio.to_thread(make, broker)
    ticking.cancel()
    assert during_start > 1, "the loop has run during the start"
    assert not broker.running


def test_several_embedded_brokers_in_one_process_are_independent(broker):
    with Broker() as other:
        make(broker)
        with connect(other) as client:
            assert client.call(MetadataRequest(topics=None)).topics == []
        assert other.port != broker.port


def test_an_embedded_brokers_temporary_directory_is_removed_at_its_end():
    with Broker() as broker:
        directory = broker.inside(lambda inner: inner.settings.log_dir)
        assert os.path.isdir(directory)
    assert not os.path.exists(directory)


@pytest.mark.parametrize(
    "ending", first_only(["sys.exit(3)", "os.kill(os.getpid(), 2)", "raise KeyboardInterrupt", "pass"], 2)
)
def test_an_embedded_brokers_temporary_directory_is_removed_at_process_exit(ending):
    script = f"""
        import os, sys
        from fencepost.broker.embedded.broker import Broker
        broker = Broker().start()
        print(broker.inside(lambda inner: inner.settings.log_dir), flush=True)
        {ending}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    directory = done.stdout.strip()
    assert directory
    assert not os.path.exists(directory)


def test_a_forked_child_leaves_the_broker_and_its_directory_alone(broker):
    """stop() in the child neither stops the parent's broker nor removes its temporary directory."""
    directory = broker.inside(lambda inner: inner.settings.log_dir)
    script = f"""
        import os
        from fencepost.broker.embedded.broker import Broker
        broker = Broker().start()
        child = os.fork()
        if child == 0:
            broker.stop()
            raise SystemExit
        os.waitpid(child, 0)
        print(os.path.isdir(broker.inside(lambda inner: inner.settings.log_dir)), {directory!r} != "")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "True True", done.stderr


def test_a_data_directory_that_was_given_is_kept_after_the_embedded_broker_ends(tmp_path):
    with Broker(data_dir=tmp_path / "data") as broker:
        make(broker)
        write(broker)
    with Broker(data_dir=tmp_path / "data") as broker:
        assert end_of(broker) == 1


def test_an_embedded_broker_takes_kafkas_settings_in_snake_case():
    with Broker(num_partitions=3, log_retention_hours=2, auto_create_topics_enable=True) as broker:
        with connect(broker) as client:
            client.call(MetadataRequest(topics=[MetadataRequest.Topic(name="made")], allow_auto_topic_creation=True))
        assert len(broker.inside(lambda inner: inner.topics.by_name["made"].partitions)) == 3
        assert broker.inside(lambda inner: inner.settings.log_retention_ms) == 7_200_000


def test_a_misspelt_embedded_setting_is_refused_and_the_nearest_name_suggested():
    with pytest.raises(TypeError, match="did you mean num_partitions"):
        Broker(num_partition=3)


def test_an_invalid_setting_is_refused_before_an_embedded_broker_starts():
    with pytest.raises(InvalidOption, match=r"num\.partitions"):
        Broker(num_partitions=0)


def process_wide():
    return {
        "collector": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), list(gc.callbacks)),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "loop policy": asyncio.get_event_loop_policy(),
        "logging": (logging.root.level, list(logging.root.handlers), logging.lastResort, logging.raiseExceptions),
        "our loggers": [
            (name, logger.level, list(logger.handlers), logger.propagate)
            for name, logger in logging.root.manager.loggerDict.items()
            if isinstance(logger, logging.Logger) and name.startswith("fencepost") and name != "fencepost.client"
        ],
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook, sys.getswitchinterval()),
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "threads": [thread for thread in threading.enumerate() if thread.name != "fencepost-broker"],
    }


def test_an_embedded_broker_changes_no_state_of_its_process():
    before = process_wide()
    with Broker() as broker:
        make(broker)
        write(broker)
        broker.kill()
        broker.restart()
        during = process_wide()
        executors = ("journal", "segments", "reads", "records", "passwords")
        during["threads"] = [one for one in during["threads"] if not one.name.startswith(executors)]
        assert during == before
    assert process_wide() == before


# ---- killed, halted, paused -----------------------------------------------------------------------------------


def test_a_kill_resets_connections_and_a_restart_has_all_that_was_acknowledged(broker):
    make(broker)
    write(broker)
    client = connect(broker)
    client.call(MetadataRequest(topics=[]))
    broker.kill()
    assert client.is_closed()
    client.close()
    with pytest.raises(ConnectionRefusedError):
        connect(broker)
    broker.restart()
    assert end_of(broker) == 1


def test_killing_an_embedded_broker_loses_unsynced_records():
    with Broker(durability_mode="os", log_checkpoint_interval_ms=3_600_000) as broker:
        make(broker)
        # Then the topic is synced, and so is the empty journal round that records it: no other sync is due.
        broker.advance(0.2)
        write(broker)
        broker.kill()
        broker.restart()
        assert end_of(broker) == 0


def test_an_orderly_restart_loses_no_records_in_durability_mode_os():
    with Broker(durability_mode="os") as broker:
        make(broker)
        write(broker)
        broker.restart()
        assert end_of(broker) == 1


def halted_by_a_failed_sync(broker):
    make(broker)
    broker.disk.fail_sync()
    # The write is answered if the sync of another file is the one that fails.
    with contextlib.suppress(Closed, ConnectionError):
        write(broker)
    wait_until(lambda: not broker.running)


def test_a_failed_sync_stops_the_embedded_broker_and_the_with_block_raises():
    def block():
        with Broker() as broker:
            halted_by_a_failed_sync(broker)

    with pytest.raises(BrokerHaltedError, match="Input/output error") as raised:
        block()
    assert isinstance(raised.value.__cause__, OSError)


async def test_a_failed_sync_raises_from_an_async_block_instead_of_a_clients_error():
    async def block():
        async with Broker() as broker:
            await asyncio.to_thread(halted_by_a_failed_sync, broker)
            raise Closed

    with pytest.raises(BrokerHaltedError) as raised:
        await block()
    assert isinstance(raised.value.__context__, Closed)


def test_a_keyboard_interrupt_is_raised_although_the_broker_has_halted():
    def block():
        with Broker() as broker:
            halted_by_a_failed_sync(broker)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        block()


def test_restarting_a_halted_embedded_broker_recovers_its_data(broker):
    make(broker)
    write(broker)
    broker.disk.fail_sync()
    acknowledged = False
    with contextlib.suppress(Closed, ConnectionError):
        write(broker, value=b"in doubt")
        acknowledged = True  # the sync of another file is the one that fails, for example of a segment
    wait_until(lambda: broker.halted is not None)
    broker.restart()
    assert broker.halted is None
    assert end_of(broker) == 2 if acknowledged else end_of(broker) in (1, 2)


def test_a_paused_broker_keeps_connections_and_answers_when_resumed(broker):
    with connect(broker) as client:
        broker.pause()
        assert broker.paused
        client.send(MetadataRequest(topics=[]))
        assert client.nothing_comes()
        broker.resume()
        assert client.receive().brokers


def test_a_killed_paused_broker_does_not_run_requests_that_arrived_while_paused(broker):
    make(broker)
    with connect(broker) as client:
        broker.pause()
        client.send(produce("t", now_batch()))
        broker.kill()
        assert client.is_closed()
    broker.restart()
    assert end_of(broker) == 0


def test_an_embedded_broker_can_be_stopped_while_paused():
    with Broker() as broker:
        broker.pause()
    assert not broker.running


def test_inside_on_a_paused_broker_raises_runtime_error_instead_of_hanging(broker):
    broker.pause()
    with pytest.raises(RuntimeError, match="paused"):
        broker.inside(lambda inner: inner.cluster_id)


def test_an_embedded_broker_on_a_used_port_raises_os_error_and_does_not_run(broker):
    other = Broker(port=broker.port)
    with pytest.raises(OSError, match="Address already in use"):
        other.start()
    assert not other.running


# ---- time -----------------------------------------------------------------------------------------------------


def begin_transaction(client, name, timeout_ms):
    identity = client.call(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms), 4)
    assert identity.error_code == 0
    added = client.call(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.producer_epoch,
            v3_and_below_topics=[TxnTopic(name="t", partitions=[0])],
        ),
        3,
    )
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0


def state_of(client, name):
    (found,) = client.call(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
    return found.transaction_state


def test_advancing_the_embedded_brokers_time_aborts_late_transactions_at_once(broker):
    make(broker)
    with connect(broker) as client:
        begin_transaction(client, "slow", 60_000)
        broker.advance(59)
        assert state_of(client, "slow") == "Ongoing"
        broker.advance(2)
        assert state_of(client, "slow") == "CompleteAbort"


def test_advancing_the_embedded_brokers_time_ends_waiting_fetches(broker):
    make(broker)
    with connect(broker) as client:
        client.send(fetch("t", 0, max_wait_ms=1_000_000), 11)
        assert client.nothing_comes()
        broker.advance(1_001)
        assert bytes_of(fetched(client.receive())) == b""


def test_advancing_time_expires_earlier_records_but_none_written_afterwards(broker):
    make(broker, retention_ms=3_600_000)
    write(broker)
    broker.advance(3_700)
    with connect(broker) as client:
        assert client.call(list_offsets("t", -2)).topics[0].partitions[0].offset == 1
    make(broker, "later", retention_ms=3_600_000)
    write(broker, "later")
    broker.advance(10)
    with connect(broker) as client:
        assert client.call(list_offsets("later", -2)).topics[0].partitions[0].offset == 0


def test_time_can_be_advanced_while_an_embedded_broker_is_paused_or_killed(broker):
    """A negative time is refused."""
    make(broker)
    with connect(broker) as client:
        begin_transaction(client, "slow", 60_000)
    broker.pause()
    broker.advance(61)
    broker.resume()
    broker.advance(0)
    with connect(broker) as client:
        assert state_of(client, "slow") == "CompleteAbort"
    broker.kill()
    broker.advance(5)
    broker.restart()
    with pytest.raises(ValueError, match="does not go back"):
        broker.advance(-1)


def test_fencepost_exports_broker_and_broker_halted_error_which_has_a_hint():
    import fencepost

    assert fencepost.BrokerHaltedError is BrokerHaltedError
    assert fencepost.Broker is Broker
    assert issubclass(BrokerHaltedError, fencepost.KafkaError)
    assert BrokerHaltedError.hint


def test_an_embedded_broker_runs_on_asyncios_own_loop_without_uvloop(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with Broker() as broker:
        make(broker)
        write(broker)
        with connect(broker) as client:
            begin_transaction(client, "slow", 60_000)
            broker.advance(61)
            assert state_of(client, "slow") == "CompleteAbort"
        broker.kill()
        broker.restart()
        assert end_of(broker) == 2  # the record, and the marker of the abort


def test_kills_under_load_lose_nothing_that_was_acknowledged():
    """Each of eight kills comes while six producers write."""
    with Broker(durability_mode="fsync", journal_max_bytes=4 << 20) as broker:
        make(broker)
        acknowledged = {}
        for life in range(1, 9):
            threads = [threading.Thread(target=write_until_cut, args=(broker, acknowledged)) for _ in range(6)]
            for thread in threads:
                thread.start()
            wait_until(lambda wanted=life * 60: len(acknowledged) >= wanted)
            broker.kill()
            for thread in threads:
                thread.join()
            broker.restart()
        read = values_of(broker)
        assert {offset: read[offset] for offset in acknowledged} == acknowledged
        assert not broker.failures


def write_until_cut(broker, acknowledged):
    try:
        with connect(broker) as client:
            while True:
                value = os.urandom(200)
                ((code, offset),) = answers(client.call(produce("t", now_batch(value))))
                assert code == 0
                acknowledged[offset] = value
    except (Closed, ConnectionError):
        pass


def values_of(broker):
    found, offset, end = {}, 0, end_of(broker)
    with connect(broker) as client:
        while offset < end:
            for each in walk(memoryview(bytes_of(fetched(client.call(fetch("t", offset), 11))))):
                for record in records(each):
                    found[record.offset] = record.value
                offset = each.next_offset
    return found


def test_advancing_the_embedded_brokers_time_ends_sessions_of_silent_members(broker):
    with connect(broker) as client:
        client.ask = client.call
        alone(client, session_timeout_ms=30_000)
        broker.advance(29)
        assert group_state(client) == "Stable"
        broker.advance(2)
        assert group_state(client) == "Empty"


def test_starting_and_stopping_embedded_brokers_leaks_no_descriptors_or_threads():
    def held():
        return len(os.listdir("/dev/fd")), {thread.name for thread in threading.enumerate()}

    with Broker():
        pass
    before = held()
    with Broker() as broker:
        for life in range(3):
            make(broker, f"t{life}")
            broker.kill()
            broker.restart()
    assert held() == before
