import asyncio
import gc
import threading
import time
import weakref

import pytest
from eventually import wait_until
from fencepost.effects.disk import SystemDisk
from fencepost.effects.threads import QUICK_NS, JobDropped, ThreadExecutor
from loops import LOOPS


@pytest.fixture(params=LOOPS)
def run(request):
    """Run a coroutine to its end on either kind of loop."""

    def run(main):
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            return runner.run(main())

    return run


async def finish(executor, jobs):
    """Run the jobs. Returns (result, thread in which its callback ran) for each."""
    results = []
    finished = asyncio.Event()

    def done(result):
        results.append((result, threading.current_thread()))
        if len(results) == len(jobs):
            finished.set()

    for job in jobs:
        executor.submit(job, done)
    await asyncio.wait_for(finished.wait(), 10)
    return results


def test_an_executor_of_one_thread_keeps_the_order_and_calls_done_on_the_loop(run):
    async def main():
        executor = SystemDisk().executor("journal")
        results = await finish(executor, [lambda i=i: (i, threading.current_thread()) for i in range(50)])
        executor.close()
        assert [value[0] for value, _ in results] == list(range(50))
        assert {where for _, where in results} == {threading.main_thread()}
        assert {value[1].name for value, _ in results} == {"journal-0"}

    run(main)


def test_an_executor_passes_the_exception_of_a_job_to_its_done_callback(run):
    async def main():
        executor = SystemDisk().executor("journal")

        def fail():
            raise OSError(5, "broken")

        [(error, _)] = await finish(executor, [fail])
        executor.close()
        assert isinstance(error, OSError)

    run(main)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, BaseException])
def test_a_system_exit_raised_by_a_job_is_passed_to_done_and_the_next_job_runs(run, kind):
    async def main():
        executor = SystemDisk().executor("journal")

        def leave():
            raise kind

        [(error, _), (result, _)] = await finish(executor, [leave, lambda: "next"])
        executor.close()
        assert isinstance(error, kind)
        assert result == "next"

    run(main)


def test_three_threads_of_an_executor_run_three_jobs_at_once(run):
    async def main():
        executor = SystemDisk().executor("segments", threads=3)
        together = threading.Barrier(3)
        results = await finish(executor, [lambda: together.wait(10)] * 3)
        executor.close()
        assert sorted(value for value, _ in results) == [0, 1, 2]

    run(main)


def test_closing_an_executor_waits_for_submitted_jobs_and_later_submits_raise(run):
    async def main():
        executor = SystemDisk().executor("journal")
        ran = []
        executor.submit(lambda: time.sleep(0.02), lambda _: None)
        executor.submit(lambda: ran.append(1), lambda _: None)
        executor.close()
        assert ran == [1]
        with pytest.raises(RuntimeError):
            executor.submit(lambda: None, lambda _: None)

    run(main)


# ---- whose job it is, and whether anybody wants it ---------------------------------------------------------------


class Busy:
    """An executor of one thread that is at work until the test says so; what it runs from then on, by name."""

    def __init__(self):
        self.executor = SystemDisk().executor("records")
        self.go = threading.Event()
        self.began = threading.Event()
        self.over = asyncio.Event()
        self.submitted = 0
        self.ran = []
        self.results = []
        self.executor.submit(self._wait, lambda _: None)
        self.began.wait(10)

    def _wait(self):
        self.began.set()
        self.go.wait(10)

    def submit(self, name, **more):
        self.submitted += 1
        self.executor.submit(lambda: self.ran.append(name), self._done, **more)

    def _done(self, result):
        self.results.append(result)
        if len(self.results) == self.submitted:
            self.over.set()

    async def finish(self):
        """Let it work; returns when all that was submitted is over."""
        self.go.set()
        await asyncio.wait_for(self.over.wait(), 10)
        self.executor.close()


def test_an_executor_runs_one_job_of_each_owner_in_turn_each_owners_jobs_in_order(run):
    async def main():
        busy = Busy()
        for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
            busy.submit(name, owner=name[0])
        await busy.finish()
        assert busy.ran == ["a1", "b1", "c1", "a2", "b2", "a3"]

    run(main)


def test_a_queued_job_whose_wanted_returns_false_is_not_run_and_gets_job_dropped(run):
    async def main():
        busy = Busy()
        wanted = {"gone": True, "here": True}
        for name in wanted:
            busy.submit(name, wanted=lambda name=name: wanted[name])
        busy.submit("whatever happens")
        wanted["gone"] = False
        await busy.finish()
        assert busy.ran == ["here", "whatever happens"]
        assert [type(each) for each in busy.results] == [JobDropped, type(None), type(None)]

    run(main)


def test_abandon_returns_before_an_executors_running_job_ends_and_submit_raises(run):
    async def main():
        executor, begun, go_on, seen = ThreadExecutor("test"), threading.Event(), threading.Event(), asyncio.Queue()

        def job():
            begun.set()
            return go_on.wait(10)

        executor.submit(job, seen.put_nowait)
        begun.wait(10)
        executor.abandon()
        assert not go_on.is_set()
        with pytest.raises(RuntimeError):
            executor.submit(job, seen.put_nowait)
        go_on.set()
        assert await seen.get() is True

    run(main)


def test_closing_an_executor_drops_queued_jobs_with_a_wanted_callback(run):
    async def main():
        busy = Busy()
        for name in ("read", "sync", "another read"):
            busy.submit(name, **({} if name == "sync" else {"wanted": lambda: True}))
        closing = threading.Thread(target=busy.executor.close)
        closing.start()
        wait_until(lambda: busy.executor._closed)
        await busy.finish()
        closing.join()
        assert busy.ran == ["sync"]
        assert [type(each) for each in busy.results] == [JobDropped, type(None), JobDropped]

    run(main)


def test_an_idle_executor_keeps_no_reference_to_its_last_job(run):
    class Job:
        def __call__(self):
            return None

    async def main():
        executor = SystemDisk().executor("journal")
        job = Job()
        alive = weakref.ref(job)
        await finish(executor, [job])
        del job
        await asyncio.sleep(0.01)
        gc.collect()
        assert alive() is None
        executor.close()

    run(main)


def test_the_result_of_a_job_whose_event_loop_was_closed_meanwhile_is_dropped():
    executor = SystemDisk().executor("journal")
    go, results = threading.Event(), []

    async def main():
        executor.submit(lambda: go.wait(10), results.append)

    asyncio.run(main())
    go.set()
    executor.close()
    assert results == []


# ---- quick or not ------------------------------------------------------------------------------------------------


class Took:
    """A clock for an executor: each job takes as long as was said last."""

    def __init__(self):
        self.ns = self.job_ns = 0

    def __call__(self):
        self.ns += self.job_ns
        return self.ns


@pytest.fixture
def took():
    return Took()


@pytest.fixture
def executor(took):
    executor = ThreadExecutor("journal", now_ns=took)
    yield executor
    executor.close()


def ran(executor, took, ns, times):
    """Run this many jobs, each of which seems to take `ns`: so much passes between the executor's two looks at the
    clock.
    """
    for _ in range(times):
        took.job_ns = 0
        executor.run_here(lambda: setattr(took, "job_ns", ns))


def test_an_executor_is_quick_while_its_average_job_time_is_below_quick_ns(executor, took):
    assert not executor.quick
    ran(executor, took, QUICK_NS // 2, 20)
    assert not executor.quick, "it began as slow as can be"
    ran(executor, took, QUICK_NS // 2, 80)
    assert executor.quick
    ran(executor, took, QUICK_NS * 2, 20)
    assert not executor.quick


def test_an_executor_is_quick_again_40_quick_jobs_after_a_slow_one(executor, took):
    ran(executor, took, QUICK_NS // 4, 200)
    ran(executor, took, QUICK_NS * 100, 1)
    assert not executor.quick
    ran(executor, took, QUICK_NS // 4, 40)
    assert executor.quick


async def test_an_executor_becomes_quick_from_jobs_that_its_threads_run(executor, took):
    def job():
        took.job_ns = QUICK_NS // 2

    took.job_ns = 0
    await finish(executor, [job] * 200)
    assert executor.quick


def test_run_here_runs_a_job_in_the_calling_thread_and_raises_its_exception_there(executor, took):
    assert executor.run_here(threading.current_thread) is threading.main_thread()
    with pytest.raises(ZeroDivisionError):
        executor.run_here(lambda: 1 // 0)
    executor.close()
    with pytest.raises(RuntimeError):
        executor.run_here(lambda: None)


def test_the_exception_of_a_job_keeps_no_local_variable_of_the_job_alive(run):
    class Large:
        pass

    kept = []

    def fails():
        kept.append(weakref.ref(large := Large()))
        raise ValueError(type(large))

    def job():
        large = Large()
        kept.append(weakref.ref(large))
        try:
            fails()
        except ValueError as error:
            raise KeyError(type(large)) from error

    async def main():
        executor = ThreadExecutor("t")
        [(error, _)] = await finish(executor, [job])
        executor.close()
        assert isinstance(error.__cause__, ValueError)
        assert [ref() for ref in kept] == [None, None]

    run(main)
