"""Starting threads where the system gives few or none."""

import asyncio
import contextvars
import errno
import socket
import threading
from functools import partial

import pytest
from fencepost.effects.disk import CannotOpen, SystemDisk
from fencepost.effects.net import SystemNet, resolve
from fencepost.effects.net import tcp as net
from fencepost.effects.net.fetching import CannotFetch, fetch
from fencepost.effects.threads import CannotStartThread, ThreadExecutor, call_all, call_in_thread, start_thread
from few_threads import threads_left
from loops import LOOPS


@pytest.fixture(params=LOOPS)
def run(request):
    def run(main):
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(asyncio.wait_for(main(), 10))

    return run


def test_start_thread_raises_cannot_start_thread_naming_the_purpose():
    with threads_left(0), pytest.raises(CannotStartThread, match=r"no further thread \(for journal\)$") as refused:
        start_thread(print, "journal")
    assert refused.value.errno == errno.EAGAIN


def test_a_lack_of_memory_for_a_thread_raises_cannot_start_thread(monkeypatch):
    def start(thread):
        raise MemoryError

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(CannotStartThread):
        start_thread(print, "journal")


def test_creating_an_executor_without_any_free_thread_raises():
    with threads_left(0), pytest.raises(CannotStartThread):
        SystemDisk().executor("journal")


def test_an_executor_with_fewer_threads_than_it_may_have_does_all_its_jobs(run):
    async def main():
        results, over = [], asyncio.Event()

        def done(result):
            results.append(result)
            if len(results) == 10:
                over.set()

        with threads_left(1) as refused:
            executor = ThreadExecutor("segments", 5)
            for number in range(10):
                executor.submit(lambda number=number: number, done)
            await over.wait()
            executor.close()
        assert results == list(range(10))
        assert set(refused) == {"segments-1"}

    run(main)


def test_an_executor_starts_threads_that_it_could_not_start_before_at_the_next_job(run):
    async def main():
        with threads_left(1):
            executor = ThreadExecutor("segments", 3)
            executor.submit(lambda: None, lambda _: None)
        together = threading.Barrier(3)
        meeting = [asyncio.get_running_loop().create_future() for _ in range(3)]
        for each in meeting:
            executor.submit(lambda: together.wait(10), each.set_result)
        assert sorted([await each for each in meeting]) == [0, 1, 2]
        executor.close()

    run(main)


@pytest.mark.parametrize("left", [0, 1, 2, 100])
def test_sync_all_syncs_every_directory_however_few_threads_can_be_started(tmp_path, left):
    made = []

    class Noting(SystemDisk):
        def sync_directory(self, path):
            made.append(path)

    paths = [str(number) for number in range(500)]
    with threads_left(left):
        Noting().sync_all([], paths)
    assert sorted(made) == sorted(paths)


@pytest.mark.parametrize("left", [0, 7])
def test_call_all_raises_another_error_of_a_call_rather_than_cannot_open(left):
    def raises(error):
        raise error

    calls = [lambda: raises(CannotOpen(errno.EMFILE, "")), lambda: None, lambda: raises(OSError(errno.EIO, ""))]
    with threads_left(left):
        with pytest.raises(OSError, match="5") as failed:
            call_all(calls, "sync", 8)
        assert failed.value.errno == errno.EIO
        with pytest.raises(CannotOpen):
            call_all(calls[:2], "sync", 8)


def test_call_in_thread_has_the_callers_context_and_returns_its_result_or_error(run):
    name = contextvars.ContextVar("name")

    async def main():
        name.set("caller")
        assert await call_in_thread(lambda: (name.get(), threading.current_thread().name), "asked") == (
            "caller",
            "asked",
        )
        with pytest.raises(KeyError):
            await call_in_thread(lambda: {}["x"], "asked")

    run(main)


def test_call_in_thread_without_a_free_thread_raises_and_never_makes_the_call(run):
    made = []

    async def main():
        with threads_left(0), pytest.raises(CannotStartThread):
            await call_in_thread(lambda: made.append(1), "asked")
        await call_in_thread(lambda: None, "another")

    run(main)
    assert made == []


def test_resolving_a_name_without_a_free_thread_raises_but_addresses_still_work(run):
    async def main():
        with threads_left(0):
            with pytest.raises(CannotStartThread):
                await SystemNet().connect(asyncio.Protocol, "localhost", 1)
            with pytest.raises(CannotStartThread):
                await SystemNet().listen(asyncio.Protocol, "broker.invalid", 0)
            listener = await SystemNet().listen(asyncio.Protocol, "127.0.0.1", 0)
            transport, _ = await SystemNet().connect(asyncio.Protocol, *listener.addresses[0])
            transport.abort()
            listener.close()
            await listener.wait_closed()

    run(main)


def test_connect_tries_the_addresses_of_a_name_until_one_accepts(run, monkeypatch):
    closed, open_ = socket.create_server(("127.0.0.2", 0)), None
    port = closed.getsockname()[1]
    closed.close()
    open_ = socket.create_server(("127.0.0.1", port))
    asked = []

    async def two(host, port, flags=0):
        asked.append(host)
        return [(socket.AF_INET, (address, port)) for address in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(net, "resolve", two)

    async def main():
        transport, _ = await SystemNet().connect(asyncio.Protocol, "name", port)
        assert transport.get_extra_info("peername")[0] == "127.0.0.1"
        transport.abort()
        open_.close()
        with pytest.raises(ConnectionRefusedError):
            await SystemNet().connect(asyncio.Protocol, "name", port)

    run(main)
    assert asked == ["name", "name"]


async def test_resolving_an_unknown_host_raises_gaierror_as_a_loop_does():
    with pytest.raises(socket.gaierror):
        await resolve("broker.invalid", 9092)


@pytest.mark.parametrize("left", [0, 1])
def test_a_fetch_raises_cannot_fetch_if_no_thread_can_be_started(tmp_path, left):
    (tmp_path / "keys").write_bytes(b"{}")
    with threads_left(left), pytest.raises(CannotFetch, match="no further thread"):
        fetch(f"file://{tmp_path}/keys", 10, 100)


@pytest.mark.parametrize("left", [0, 1, 8])
def test_call_all_runs_its_meanwhile_function_while_other_threads_make_the_calls(left):
    """If no thread can be started, the calling thread makes the calls itself."""
    callers = []
    going_on = threading.Event()

    def call():
        callers.append(threading.current_thread())
        assert not left or going_on.wait(30)

    with threads_left(left):
        call_all([call] * 3, "part", 8, going_on.set)
    assert len(callers) == 3
    assert (threading.current_thread() in callers) == (left == 0)


def test_call_all_raises_an_error_only_after_all_threads_have_ended():
    made = []
    begun, ended = threading.Barrier(3), threading.Event()

    def call():
        begun.wait(30)
        made.append(ended.wait(30))

    def ends():
        begun.wait(30)
        ended.set()
        raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        call_all([call] * 2, "part", 2, ends)
    assert made == [True, True], "what had begun was waited for"


def test_call_all_with_one_thread_makes_the_calls_in_order_and_skips_meanwhile():
    made = []
    call_all([partial(made.append, number) for number in range(3)], "part", 1, partial(made.append, "meanwhile"))
    assert made == [0, 1, 2]
