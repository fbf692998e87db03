"""What an ObjectWriter reports of rounds that it creates in worker threads."""

from collections.abc import Callable
from typing import Any

from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.effects.simulated.objects import SimulatedObjects
from fencepost.storage.objects.writer import ObjectWriter
from owner_driver import Owning


class HeldExecutor:
    """Runs a job when the test asks for it."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def submit(self, job: Callable[[], Any], done: Callable[[Any], None], **more: Any) -> None:
        self.jobs.append((job, done))

    def run(self) -> None:
        job, done = self.jobs.pop()
        done(job())

    def close(self) -> None:
        """Do nothing: no thread is there."""


def test_a_created_round_is_reported_once_and_not_after_the_writer_was_closed():
    """After close() the broker's parts that would release the round are gone."""
    owner, executor = Owning(SimulatedObjects()), HeldExecutor()
    writer = ObjectWriter(executor, SimulatedClock(), lambda seconds, call: None)
    told: list[OSError | None] = []
    for closes in (False, True):
        write = owner.store.take_round(sync=True)
        assert write.begin(writer, told.append)
        if closes:
            writer.close()
        executor.run()
        assert write.done != closes
        assert told == [None]
