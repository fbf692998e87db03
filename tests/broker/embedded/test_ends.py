"""The end of an embedded broker comes at any moment and from any side: nobody waits for ever, and nothing is left."""

import asyncio
import errno
import gc
import os
import pickle
import threading
import time
from concurrent.futures import Future
from unittest import mock

import pytest
from eventually import wait_until
from fencepost.broker.broker import Broker as InnerBroker
from fencepost.broker.embedded.broker import Broker, BrokerHaltedError
from fencepost.broker.embedded.life import Life
from fencepost.broker.upkeep import housekeeping
from fencepost.effects.disk import AlreadyLocked
from fencepost.protocol.errors import ErrorCode
from produce_requests import batch, create, produce
from wire_client import WireClient

pytestmark = pytest.mark.slow

WITHIN_S = 20
TURNS_TO_WAIT = 100  # of the event loop; __aexit__ needs a handful to return where nothing holds it back
IDLE_BEFORE_TIME_MOVES = 9  # so often does advance() wait for an idle journal before it moves the clock


def directory_of(broker):
    return broker.inside(lambda inner: inner.settings.log_dir)


def there(directory):
    return os.path.exists(directory)


def lives(before=()):
    """Return the threads of brokers, without those in `before`, which may be about to end."""
    return [one for one in threading.enumerate() if one.name == "fencepost-broker" and one not in before]


def begin(call, *arguments):
    """Make the call in a thread of its own, and return a future of its result. So a call that hangs fails its test by a
    timeout; its thread is left behind.
    """
    result = Future()

    def run():
        try:
            result.set_result(call(*arguments))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


# ---- calls that wait while the broker ends --------------------------------------------------------------------


def stand_at(inner, count, standing):
    """Let the count-th wait for an idle journal set `standing` and never end. Those before it end at once."""
    left = [count]

    async def idle():
        left[0] -= 1
        if left[0] == 0:
            del inner.idle
            standing.set()
            await asyncio.Event().wait()

    inner.idle = idle


@pytest.mark.parametrize("count", [1, IDLE_BEFORE_TIME_MOVES + 1])
@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_advance_during_a_stop_or_kill_moves_time_exactly_once_and_returns(end, count):
    with Broker() as broker:
        standing = threading.Event()
        broker.inside(lambda inner: stand_at(inner, count, standing))
        before = broker.clock.monotonic_ms()
        moving = begin(broker.advance, 600)
        assert standing.wait(WITHIN_S)
        end(broker)
        moving.result(WITHIN_S)
        assert 600_000 <= broker.clock.monotonic_ms() - before < 1_200_000  # once, and not twice


def test_advance_while_a_sync_fails_moves_time_exactly_once():
    broker = Broker().start()
    with WireClient(broker.host, broker.port) as client:
        client.call(create("t"))
        before = broker.clock.monotonic_ms()
        broker.disk.fail_sync()
        client.send(produce("t", batch(1)), 9)
        begin(broker.advance, 600).result(WITHIN_S)
    assert 600_000 <= broker.clock.monotonic_ms() - before < 1_200_000  # once, and not twice
    wait_until(lambda: broker.halted)
    with pytest.raises(BrokerHaltedError):
        broker.stop()


def test_a_moved_directory_halts_the_broker_with_a_hint(tmp_path):
    path, moved = tmp_path / "data", tmp_path / "moved"
    broker = Broker(data_dir=path).start()
    path.rename(moved)
    with pytest.raises(BrokerHaltedError, match=r"data was moved, removed or replaced") as raised:
        broker.stop()
    assert raised.value.hint.startswith("stop a broker before its data directory is moved")
    assert pickle.loads(pickle.dumps(raised.value)).hint == raised.value.hint
    with Broker(data_dir=moved):
        pass
    assert not path.exists()


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS])
def test_a_stop_whose_writes_all_fail_releases_the_lock_and_all_descriptors(tmp_path, monkeypatch, error):
    with Broker(data_dir=tmp_path):
        pass  # the process's first loop opens a pipe that stays
    before = len(os.listdir("/proc/self/fd"))
    broker = Broker(data_dir=tmp_path).start()
    with monkeypatch.context() as patched:
        patched.setattr(housekeeping, "SAVED_AGE_MS", 0)  # the stop writes a checkpoint, whatever was written before
        for step in ("ftruncate", "pwrite", "pwritev", "fsync", "fdatasync", "replace", "unlink"):
            patched.setattr(os, step, mock.Mock(side_effect=OSError(error, os.strerror(error))))
        with pytest.raises(BrokerHaltedError, match=os.strerror(error)):
            broker.stop()
    assert len(os.listdir("/proc/self/fd")) == before
    with Broker(data_dir=tmp_path):
        pass


@pytest.fixture
def just_ended(monkeypatch):
    """A broker that has ended, and whose `running` is still True, as for a caller that read it just before the end."""
    with Broker() as broker:
        broker.kill()
        monkeypatch.setattr(Life, "running", True)
        yield broker
        monkeypatch.undo()


def test_on_an_ended_broker_advance_moves_time_and_inside_raises_runtime_error(just_ended):
    """inside() runs a function in the event loop of the embedded broker."""
    before = just_ended.clock.monotonic_ms()
    begin(just_ended.advance, 600).result(WITHIN_S)
    assert 600_000 <= just_ended.clock.monotonic_ms() - before < 1_200_000  # once, and not twice
    with pytest.raises(RuntimeError, match="the broker does not run"):
        begin(just_ended.inside, lambda inner: inner).result(WITHIN_S)
    begin(just_ended.intercept, lambda serve: serve).result(WITHIN_S)
    gc.collect()  # a coroutine that nobody awaited is a warning, and so an error


def test_pausing_an_embedded_broker_that_has_just_ended_has_no_effect(just_ended):
    begin(just_ended.pause).result(WITHIN_S)
    assert not just_ended.paused


def test_an_exception_in_a_function_passed_to_inside_reaches_the_caller():
    with Broker() as broker, pytest.raises(ZeroDivisionError):
        broker.inside(lambda inner: 1 / 0)


# ---- cancelled ------------------------------------------------------------------------------------------------


async def used(broker):
    async with broker:
        pass


async def cancelled(task):
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_embedded_brokers_cancelled_start_leaves_its_directory_unlocked(tmp_path):
    before = lives()
    starting = asyncio.ensure_future(used(Broker(tmp_path)))
    await asyncio.sleep(0)
    assert lives(before) != []
    await cancelled(starting)
    assert lives(before) == []
    with Broker(tmp_path) as again:
        assert again.running


async def test_a_start_that_is_cancelled_leaves_no_temporary_directory():
    broker = Broker()
    starting = asyncio.ensure_future(used(broker))
    await asyncio.sleep(0)
    directory = broker._directory
    assert there(directory)
    await cancelled(starting)
    assert not there(directory)
    async with broker:
        assert broker.running


async def test_a_start_that_fails_while_cancelled_causes_no_asyncio_warning(tmp_path, caplog):
    async with Broker(tmp_path):
        with pytest.raises(AlreadyLocked):
            await used(Broker(tmp_path))
        starting = asyncio.ensure_future(used(Broker(tmp_path)))
        await asyncio.sleep(0)
        await cancelled(starting)
        del starting
    await asyncio.sleep(0)
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def test_cancelling_the_exit_of_async_with_broker_still_stops_the_broker():
    leave, leaving = asyncio.Event(), asyncio.Event()
    broker, before = Broker(), lives()

    async def block():
        async with broker:
            await leave.wait()
            leaving.set()

    task = asyncio.ensure_future(block())
    await asyncio.to_thread(wait_until, lambda: broker.running)
    directory = directory_of(broker)
    leave.set()
    await leaving.wait()
    await cancelled(task)
    assert not there(directory)
    assert lives(before) == []
    broker.stop()


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
def test_stop_and_kill_return_after_the_thread_of_the_broker_has_ended(monkeypatch, end):
    run, before = Life._run, lives()

    def run_and_end_slowly(life):
        run(life)
        time.sleep(0.2)

    monkeypatch.setattr(Life, "_run", run_and_end_slowly)
    with Broker() as broker:
        end(broker)
        assert lives(before) == []


# ---- stopped by several callers -------------------------------------------------------------------------------


def hold_the_end(inner, ending, go_on):
    """Let the next wait for an idle journal set `ending`, and end only once `go_on` is set."""

    async def idle():
        del inner.idle
        ending.set()
        await asyncio.to_thread(go_on.wait)

    inner.idle = idle


@pytest.fixture
def held():
    """A broker, its directory, an event that is set once its end has begun, and one that lets the end go on."""
    broker = Broker().start()
    ending, go_on = threading.Event(), threading.Event()
    directory = directory_of(broker)
    broker.inside(lambda inner: hold_the_end(inner, ending, go_on))
    yield broker, directory, ending, go_on
    go_on.set()
    broker.stop()


def test_a_concurrent_second_stop_waits_for_the_first(held):
    broker, directory, ending, go_on = held
    first = begin(broker.stop)
    assert ending.wait(WITHIN_S)
    second = begin(broker.stop)
    with pytest.raises(TimeoutError):
        second.result(0.1)
    assert there(directory)
    go_on.set()
    assert first.result(WITHIN_S) is None
    assert second.result(WITHIN_S) is None
    assert not there(directory)


async def test_the_end_of_a_with_block_waits_for_a_stop_in_another_thread(held):
    broker, directory, ending, go_on = held
    stopping = asyncio.ensure_future(asyncio.to_thread(broker.stop))
    await asyncio.to_thread(ending.wait, WITHIN_S)
    leaving = asyncio.ensure_future(broker.__aexit__(None, None, None))
    for _ in range(TURNS_TO_WAIT):  # __aexit__ runs until it waits for the end that `go_on` holds back
        await asyncio.sleep(0)
    assert not leaving.done()
    assert there(directory)
    go_on.set()
    await asyncio.wait_for(asyncio.gather(stopping, leaving), WITHIN_S)
    assert not there(directory)


def test_simultaneous_stops_from_many_threads_raise_nothing():
    for _ in range(5):
        broker = Broker().start()
        for stopping in [begin(broker.stop) for _ in range(4)]:
            stopping.result(WITHIN_S)


# ---- started by two callers at once ---------------------------------------------------------------------------


def hold_the_start(monkeypatch):
    """Return an event that is set once a start has begun, and one that lets the start go on."""
    starting, go_on = threading.Event(), threading.Event()
    start = InnerBroker.start

    async def held(inner):
        starting.set()
        await asyncio.to_thread(go_on.wait)
        await start(inner)

    monkeypatch.setattr(InnerBroker, "start", held)
    return starting, go_on


def test_a_second_start_raises_runtime_error_and_does_not_disturb_the_first(monkeypatch):
    starting, go_on = hold_the_start(monkeypatch)
    broker, before = Broker(), lives()
    first = begin(broker.start)
    assert starting.wait(WITHIN_S)
    second = begin(broker.start)
    try:
        with pytest.raises(RuntimeError, match="runs already"):
            second.result(WITHIN_S)
    finally:
        go_on.set()
    assert first.result(WITHIN_S) is broker
    assert broker.running
    directory = directory_of(broker)
    broker.stop()
    assert not there(directory)
    assert lives(before) == []


@pytest.mark.parametrize("step", ["start", "stop"])
def test_kill_ends_a_start_or_stop_that_waits_for_the_journal(monkeypatch, tmp_path, step):
    """The kill is held back until the start or stop waits in `idle`, and is then carried out before the loop sees what
    the journal did. A stop then returns, a start may raise, and the directory can be opened again.
    """
    broker = Broker(tmp_path)
    if step == "stop":
        broker.start()
        broker.inside(lambda inner: inner.topics.create("t", 1))
    waiting, dying = threading.Event(), threading.Event()
    idle, die, soon = InnerBroker.idle, Life._die, Life._soon

    def hold_back_the_kill(life, call, *arguments):
        if call == life._die:
            dying.set()
        else:
            soon(life, call, *arguments)

    async def idle_as_it_dies(inner):
        monkeypatch.setattr(InnerBroker, "idle", idle)
        waiting.set()
        waits = asyncio.ensure_future(idle(inner))
        await asyncio.sleep(0)
        dying.wait()  # nothing that the journal did is seen before the kill
        die(broker._life)
        await waits

    monkeypatch.setattr(InnerBroker, "idle", idle_as_it_dies)
    monkeypatch.setattr(Life, "_soon", hold_back_the_kill)
    call = begin(getattr(broker, step))
    assert waiting.wait(WITHIN_S)
    assert begin(broker.kill).result(WITHIN_S) is None
    assert call.exception(WITHIN_S) is None or step == "start"
    monkeypatch.undo()
    with broker:
        assert broker.running


def test_the_error_of_a_halted_broker_survives_being_pickled():
    again = pickle.loads(pickle.dumps(BrokerHaltedError("the disk failed")))
    assert (type(again), str(again), again.code) == (
        BrokerHaltedError,
        "the disk failed",
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
