"""A failed sync of any file halts the broker: no ack, no reply, and only a recovery may follow.

A scripted run is recorded once, with the place in the code that asks for each sync. Then each place fails in turn, on
a run that is the same up to there. The runs are of the whole broker on simulated disk, net and time; the last tests
are real processes.
"""

import errno
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest
from broker_lives import append_jointly, end, slow, small
from broker_oracle import Acknowledged, Sent, check, run_traffic
from broker_process import BrokerProcess, broker_process
from fencepost.broker.net.connection import Connection
from fencepost.effects.simulated.disk import SimulatedDisk
from fencepost.effects.simulated.operations import Sync, SyncDirectory
from fencepost.protocol import batches
from fencepost.protocol.records import records
from fencepost.storage.journal.journal import SyncJob
from fencepost.storage.store import BrokerHalted
from long_runs import first_only
from produce_requests import answers, batch, bytes_of, create, fetch, fetched, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from wire_client import Closed, WireClient

pytestmark = pytest.mark.slow

SECONDS = 13.0  # of virtual time; there is a flush every 2 s, and a checkpoint every 4 s
PLACES = 3  # see place()
SETTINGS = small(log_checkpoint_interval_ms=4_000)


def begin(disk: SimulatedDisk) -> SimulatedBroker:
    slow(disk, journal=0.004, segments=0.003, reads=0.001)
    return SimulatedBroker(SETTINGS, disk=disk)


def frames() -> list[str]:
    """Return the functions of the storage package that are on the stack, the outermost first."""
    ours = [frame for frame in traceback.extract_stack() if "/storage/" in frame.filename]
    return [f"{frame.filename.rpartition('/')[2]}:{frame.name}" for frame in ours]


def place() -> str:
    """Return the last PLACES functions of frames(): the place in the code that asks for a sync."""
    return " ".join(frames()[-PLACES:])


@pytest.fixture(scope="module")
def sites() -> dict[str, list[int]]:
    """Run the script. Return, by place (see place()) and kind of sync, the numbers of its disk operations. Syncs of the
    recovery before the script are not among them.
    """
    found: dict[str, list[int]] = {}

    def spy(one) -> bool:
        if isinstance(one, Sync | SyncDirectory):
            found.setdefault(f"{place()} {type(one).__name__}", []).append(one.index)
        return False

    disk = SimulatedDisk()
    broker = begin(disk)
    disk.fail(spy, times=None)
    run_traffic(broker, "scripted", SECONDS)
    assert broker.broker.halted is None
    end(broker)
    return found


def test_the_workload_of_these_tests_syncs_every_kind_of_file(sites):
    names = "\n".join(sites)
    for part in (
        "journal.py:_sync_each Sync",  # rounds
        "preparing.py:_make Sync",  # files made ahead
        "preparing.py:_make SyncDirectory",
        "open_files.py:<lambda> Sync",  # segments
        "open_files.py:<lambda> SyncDirectory",  # folders of logs
        "checkpoints.py:_fill Sync",
        "checkpoints.py:write_file SyncDirectory",
    ):
        assert part in names, part


def failing(index: int, error: int = errno.EIO):
    """Run the script with this disk operation failing. Returns the broker, and what was written to clients after its
    halt.
    """
    disk = SimulatedDisk()
    broker = begin(disk)
    late: list[object] = []
    write = Connection._write

    def watched(self, out):
        if broker.broker.halted is not None:
            late.append(out)
        write(self, out)

    disk.fail_operation(index, error=error)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "_write", watched)
        run_traffic(broker, "scripted", SECONDS)
        broker.wait(2)
    return broker, late


@pytest.mark.requirement("S-11", "S-31")
def test_a_failed_sync_of_any_file_halts_the_broker_without_an_answer(sites):
    """The first and the last sync of each place in the code that syncs are made to fail."""
    for site, indexes in sites.items():
        for index in sorted({indexes[0], indexes[-1]}):
            broker, late = failing(index)
            assert isinstance(broker.broker.halted, OSError), site
            assert late == [], site
            assert broker.net.connections == [], site
            for left in (broker.disk.after_process_crash(), broker.disk.after_power_cut()):
                judged(left, site)
            end(broker)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_of_a_checkpoint_halts_the_broker(number, monkeypatch):
    """With durability os the checkpoint itself syncs journal files that no round has synced."""
    jobs, run = [], SyncJob.run

    def noted(job):
        jobs.append(job)
        run(job)

    monkeypatch.setattr(SyncJob, "run", noted)
    broker = begin(SimulatedDisk())
    broker.ask(create("weak", durability_mode="os"))
    of_a_job = lambda one: isinstance(one, Sync) and bool(jobs) and not jobs[-1].ended  # noqa: E731
    fault = broker.disk.fail(of_a_job, error=number)
    for _ in range(100):
        if not fault.hits:
            assert answers(broker.ask(produce("weak", batch()), 11))[0][0] == 0
            append_jointly(broker, "weak")
            broker.wait(0.1)
    assert fault.hits == 1
    broker.wait(0.1)
    assert isinstance(broker.broker.halted, OSError)
    assert broker.net.connections == []
    end(broker)


def test_a_sync_that_fails_with_enospc_halts_and_is_not_retried(sites):
    """A sync fails like that with delayed allocation, quotas and network disks. The kernel marks the pages clean, so a
    second sync would succeed without writing them.
    """
    for site, indexes in sites.items():
        broker, late = failing(indexes[-1], errno.ENOSPC)
        left = broker.disk.after_power_cut()
        halted = broker.broker.halted
        end(broker)
        assert isinstance(halted, OSError), site
        assert late == [], site
        judged(left, site)


def judged(left: SimulatedDisk, description: str) -> None:
    """Recover from the disk, and check that all that was answered before the halt is there."""
    again = SimulatedBroker(SETTINGS, disk=left)
    try:
        check(again)
    except BaseException as error:
        error.add_note(description)
        raise
    finally:
        end(again)


@pytest.fixture
def halted():
    """A broker that has halted in the middle of a produce request, and the client that sent it."""
    disk = SimulatedDisk()
    broker = begin(disk)
    run_traffic(broker, "short", 1.0)
    client = SimulatedClient(broker)
    disk.fail_sync(lambda path: "/journal/" in path)
    sent = Sent(("t", 0), 77, 0, b"on its way")
    disk.note(sent)
    client.send(produce("t", sent.data), 11)
    broker.wait(1)
    yield broker, client
    if not broker.loop.is_closed():
        broker.stop()


def test_on_halt_callbacks_get_the_error_before_connections_are_aborted(monkeypatch):
    """A client thread that sees its connection closed may ask for the cause at once."""
    with SimulatedBroker(SETTINGS) as broker:
        order: list[str] = []
        broker.broker.on_halt.append(lambda error: order.append("cause"))
        abort_all = broker.broker.server.abort_all
        monkeypatch.setattr(broker.broker.server, "abort_all", lambda: (order.append("ends"), abort_all()))
        broker.broker.rounds.halt(OSError("gone"))
    assert order[:2] == ["cause", "ends"]


def test_the_request_whose_sync_failed_is_not_answered_and_its_connection_closes(halted):
    _, client = halted
    with pytest.raises(ConnectionError):
        client.receive()


def test_after_a_halt_every_change_raises_broker_halted_with_the_cause(halted):
    broker, _ = halted
    assert isinstance(broker.broker.halted, OSError)
    store, topics = broker.broker.store, broker.broker.topics
    (log,) = (log for log in store.logs.values() if (log.topic, log.partition) == ("t", 0))
    end_offset, last_unit = log.end_offset, store.last_unit
    calls = [
        lambda: store.append(log, batches.check_produced(memoryview(batch()))),
        lambda: store.commit([store.log_start_part(log, 1)]),
        lambda: topics.create("another", 1),
        lambda: topics.delete(topics.by_name["t"]),
        lambda: topics.alter_configs(topics.by_name["t"], {"retention.ms": "1"}),
        lambda: store.check_running(),
    ]
    for call in calls:
        with pytest.raises(BrokerHalted) as raised:
            call()
        assert raised.value.__cause__ is broker.broker.halted
    assert (log.end_offset, store.last_unit) == (end_offset, last_unit)
    assert "t" in topics.by_name
    assert "another" not in topics.by_name


def test_a_halted_broker_accepts_no_new_connections(halted):
    broker, _ = halted
    newcomer = SimulatedClient(broker)
    assert newcomer.closed()


def test_a_halted_broker_makes_no_more_disk_operations(halted):
    broker, _ = halted
    before = len(broker.disk.operations)
    broker.wait(60)
    assert len(broker.disk.operations) == before


def test_stopping_a_halted_broker_writes_nothing_and_unlocks_the_directory(halted):
    broker, _ = halted
    before = len(broker.disk.operations)
    broker.stop()
    assert {one.path for one in broker.disk.operations[before:]} <= {"/.fencepost/lock"}
    left = broker.disk.after_power_cut()
    again = SimulatedBroker(SETTINGS, disk=left)
    check(again)
    end(again)


def test_a_start_after_a_halt_in_the_same_process_recovers_from_the_files(halted):
    """An embedded broker is halted, stopped and started again: recovery writes and syncs again what only the failed
    sync had covered.
    """
    broker, _ = halted
    broker.stop()
    again = SimulatedBroker(SETTINGS, disk=broker.disk)
    check(again)
    acknowledged = [note for note in broker.disk.notes if isinstance(note, Acknowledged)]
    last = SimulatedBroker(SETTINGS, disk=again.disk.after_power_cut())
    check(last)
    assert acknowledged
    end(again)
    end(last)


def test_a_bug_in_a_background_task_halts_the_broker(monkeypatch):
    """Nobody can know which state the failed task has left behind."""
    disk = SimulatedDisk()
    broker = begin(disk)
    monkeypatch.setattr(broker.broker.housekeeping._upkeep, "begin_capture", lambda: 1 / 0)
    run_traffic(broker, "short", 6.0)
    assert isinstance(broker.broker.halted, ZeroDivisionError)
    end(broker)


# ---- recovery's own syncs ------------------------------------------------------------------------------------


def syncs_of_a_start(disk: SimulatedDisk) -> list[int]:
    found = []
    disk.fail(lambda one: isinstance(one, Sync | SyncDirectory) and found.append(one.index), times=None)
    end(begin(disk))
    return found


def test_a_failed_sync_fails_the_start_and_the_next_start_loses_no_records():
    disk = SimulatedDisk()
    broker = begin(disk)
    run_traffic(broker, "before", 5.0)
    end(broker)
    for left in (disk.after_process_crash(), disk.after_power_cut()):
        indexes = syncs_of_a_start(copy_of(left))
        assert len(indexes) > 5
        for index in indexes:
            image = copy_of(left)
            image.fail_operation(index)
            with pytest.raises(OSError):
                begin(image)
            for after in (image.after_process_crash(), image.after_power_cut()):
                again = begin(after)
                check(again)
                end(again)


def copy_of(disk: SimulatedDisk) -> SimulatedDisk:
    return disk.killed_at(len(disk.operations))


# ---- real processes ------------------------------------------------------------------------------------------

FAILING_SERVE = Path(__file__).parent.parent / "support" / "brokers" / "failing_serve.py"
HALTED = 70  # the exit code of a broker that has halted


def served_by(directory: Path, program: Sequence[str]) -> BrokerProcess:
    options = ("-X", "log.checkpoint.interval.ms=100", "-X", "log.retention.check.interval.ms=100")
    return BrokerProcess(str(directory / "data"), *options, program=program)


def produce_until_it_ends(broker: BrokerProcess, within_s: float = 15) -> list[bytes]:
    """Produce until the connection is closed without an answer. Return the values that were acknowledged."""
    acknowledged = []
    until = time.monotonic() + within_s
    with WireClient("127.0.0.1", broker.port) as client:
        client.call(create("t"))
        while time.monotonic() < until:
            value = b"%d" % len(acknowledged)
            try:
                ((code, offset),) = answers(client.call(produce("t", batch(value=value)), 11))
            except (Closed, ConnectionError):
                return acknowledged
            assert (code, offset) == (0, len(acknowledged))
            acknowledged.append(value)
            time.sleep(0.005)
    raise AssertionError("the disk never failed")


def read_again(directory: Path) -> list[bytes]:
    with broker_process(str(directory / "data")) as broker, WireClient("127.0.0.1", broker.port) as client:
        part = fetched(client.call(fetch("t"), 11))
        return [record.value for one in batches.walk(memoryview(bytes_of(part))) for record in records(one)]


def halts(broker: BrokerProcess, directory: Path) -> None:
    """Check that the process ends with code 70 and says why, and that the next one has every acknowledged record."""
    broker.start()
    try:
        acknowledged = produce_until_it_ends(broker)
        assert broker.ended() == HALTED
    finally:
        broker.kill()
    given = "".join(broker.lines)
    assert "error: the broker halted:" in given
    assert "hint: " in given
    found = read_again(directory)
    assert found[: len(acknowledged)] == acknowledged
    assert len(found) <= len(acknowledged) + 1


@pytest.mark.requirement("S-11", "S-31")
@pytest.mark.parametrize(
    ("suffix", "number"), first_only([(".journal", 5), (".log", 1), (".writing", 1), ("/data", 1)], 2)
)
def test_a_process_whose_sync_fails_exits_with_70_and_keeps_acknowledged_records(tmp_path, suffix, number):
    """The sync that fails is one of the journal, a segment, a checkpoint, or the directory in which it is renamed."""
    halts(served_by(tmp_path, (sys.executable, str(FAILING_SERVE), suffix, str(number))), tmp_path)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed; the tests above do the same")
def test_a_process_whose_sync_system_calls_fail_exits_with_70(tmp_path):
    """strace makes fdatasync and pwritev2 fail: small rounds are one pwritev2 call, others a write and an fdatasync."""
    strace = ("strace", "-f", "-o", "/dev/null", "-e", "trace=fdatasync,pwritev2")
    strace += ("-e", "inject=fdatasync:error=EIO:when=25+", "-e", "inject=pwritev2:error=EIO:when=500+")
    tried = subprocess.run([*strace, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"strace does not trace here ({tried.stderr.strip()}); the tests above do the same")
    halts(served_by(tmp_path, (*strace, sys.executable, "-m", "fencepost")), tmp_path)
