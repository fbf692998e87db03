"""Executors whose jobs run when a test says so."""

from collections.abc import Callable, Hashable
from typing import Any

from fencepost.effects.threads import JobDropped

Job = Callable[[], Any]
Done = Callable[[Any], None]


class SlowWorkers:
    """An executor whose jobs run when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Job, Done]] = []
        self.owners: list[Hashable] = []
        self.dropped = 0

    def submit(self, job: Job, done: Done, *, owner: Hashable, wanted: Callable[[], bool]) -> None:
        def run() -> Any:
            if wanted():
                return job()
            self.dropped += 1
            return JobDropped()

        self.owners.append(owner)
        self.waiting.append((run, done))

    def run_one(self) -> None:
        job, done = self.waiting.pop(0)
        result: Any
        try:
            result = job()
        except BaseException as error:
            result = error
        done(result)

    def close(self) -> None:
        """Run the jobs that still wait, as a real executor does before it is closed."""
        while self.waiting:
            self.run_one()
