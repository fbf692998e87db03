"""The cause, hint and exit code for a broker that does not start."""

import asyncio

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.ownership.owner import InStore
from fencepost.broker.topics.internal_topic import InternalTopicDamaged
from fencepost.broker.transactions.ledger import DamagedLedgerRecord, NewerLedgerRecord
from fencepost.broker.transactions.records import DamagedTransactionRecord, NewerTransactionRecord
from fencepost.cli.output.failures import Failure
from fencepost.cli.serve import serving
from fencepost.cli.serve.starting import explain_failure
from fencepost.effects.disk import CannotStartThread, DiskLow
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.objects.errors import Fenced
from fencepost.storage.store import BrokerHalted

SETTINGS = BrokerSettings(log_dir="d")
UNREADABLE = OSError(5, "Input/output error", "d/logs/t-0.1/00000000000000000000.0.log")


@pytest.mark.parametrize("kind", [InternalTopicDamaged, DamagedTransactionRecord, DamagedLedgerRecord])
def test_damage_in_a_coordinators_log_is_reported_with_its_place_and_no_traceback(kind: type[Exception]) -> None:
    failure = explain_failure(kind("d/logs/__consumer_offsets-0.7: from offset 3 on: the CRC does not match"), SETTINGS)
    assert failure is not None
    assert "__consumer_offsets-0.7" in str(failure)
    assert "fencepost log verify d" in failure.hint


@pytest.mark.parametrize("kind", [NewerTransactionRecord, NewerLedgerRecord])
def test_files_of_a_newer_version_are_reported_as_written_by_a_newer_fencepost(kind: type[Exception]) -> None:
    failure = explain_failure(kind("the value has version 9"), SETTINGS)
    assert failure is not None
    assert "newer fencepost" in str(failure)


def test_explain_failure_returns_none_for_a_bug_whose_traceback_is_then_printed() -> None:
    assert explain_failure(RuntimeError("what?"), SETTINGS) is None


def test_a_broker_that_halts_while_it_starts_exits_with_70():
    error = BrokerHalted()
    error.__cause__ = OSError(27, "File too large", "d/journal/2")
    failure = explain_failure(error, SETTINGS)
    assert failure.code == 70
    assert str(failure).startswith("the broker halted: [Errno 27]")
    assert explain_failure(BrokerHalted(), SETTINGS) is None


def test_a_lack_of_memory_at_the_start_is_reported_without_a_traceback():
    failure = explain_failure(MemoryError(), SETTINGS)
    assert (failure.code, str(failure)) == (75, "d: no memory is left")


def test_a_start_that_gets_no_thread_exits_with_75_and_hints_at_tasksmax():
    failure = explain_failure(CannotStartThread("journal-0"), SETTINGS)
    assert (failure.code, str(failure)) == (75, "the system gives this process no further thread (for journal-0)")
    assert "TasksMax" in failure.hint
    assert "no record is lost" in failure.hint


def test_a_start_with_too_little_free_disk_exits_with_75_and_names_the_setting():
    failure = explain_failure(DiskLow("9 bytes are free, 10 stay free (storage.min.free.bytes)"), SETTINGS)
    assert (failure.code, str(failure)) == (75, "d: 9 bytes are free, 10 stay free (storage.min.free.bytes)")
    assert "free some space" in failure.hint
    assert "storage.min.free.bytes" in failure.hint


@pytest.mark.parametrize(
    ("path", "setting", "is_hinted"),
    [
        (UNREADABLE.filename, "refuse", True),
        ("d/journal-parts/t-0.1.2.0", "refuse", True),
        (UNREADABLE.filename, "offline", False),  # this start has tried it already
        ("d/logs/__catalogue-0.0/00000000000000000000.0.log", "refuse", False),
        ("d/journal/00000000000000000001.journal", "refuse", False),
    ],
)
def test_only_an_unreadable_partition_gets_the_hint_to_start_without_it(path, setting, is_hinted):
    settings = BrokerSettings(log_dir="d", storage_unreadable_partitions=setting)
    failure = explain_failure(OSError(5, "Input/output error", path), settings)
    assert ("starts without" in failure.hint) is is_hinted


async def test_a_broker_fenced_while_it_starts_ends_with_exit_code_71(monkeypatch):
    """It has begun its epoch, and loads what it has read. No signal came, so this is no orderly stop."""
    in_store = InStore(SimulatedObjects(), lambda seconds: None)
    server = serving._Server(BrokerSettings(), 0.0, None, ephemeral=False, ignore_dynamic=False, in_store=in_store)
    server._loop = asyncio.get_running_loop()
    server._broker.on_halt.append(lambda cause: server._end.set())
    fenced = Fenced("epoch 2 was ended at round 1 by epoch 3")

    async def start() -> None:
        for tell in server._broker.on_halt:
            tell(fenced)
        for _ in range(5):  # the server sees the halt before the start has ended
            await asyncio.sleep(0)
        raise BrokerHalted(str(fenced)) from fenced

    monkeypatch.setattr(server._broker, "start", start)
    with pytest.raises(Failure, match="epoch 2 was ended") as failed:
        await server._start_and_serve()
    assert failed.value.exit_code == 71
