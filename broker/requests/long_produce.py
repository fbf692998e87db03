"""Lets a worker thread check, or recompress, the batches of Produce requests for which that takes long.

The rules: the worker only calls `Partition.accept`, and changes nothing. After it, everything that may have changed is
looked up again; then all partitions are judged and appended in one step, as always. Meanwhile the connection waits, so
that its requests take effect in order, and other connections continue. Nothing is written if the broker halts or stops
meanwhile, or if a client that waits for an answer leaves; a client without an answer must expect that. A request with
acks=0 is written even if its client has left.
"""

import logging
from collections.abc import Callable

from ...effects.threads import forget_locals
from ...protocol.batches import Batch
from ...storage.store import BrokerHalted
from ..net.connection import Connection
from ..topics.decompression_budget import DecompressionBudget
from ..topics.partition import FEW_RECORDS, Partition
from .produce_targets import Targets
from .services import Services
from .throttling import Meter

log = logging.getLogger("fencepost.broker")


class LongProduce:
    """One Produce request whose batches a worker thread checks before they are appended."""

    def __init__(
        self,
        broker: Services,
        connection: Connection,
        targets: Targets,
        finish: Callable[[], None],
        *,
        answered: bool,
        meter: Meter | None = None,
    ) -> None:
        """finish: called after the check, to append and answer; it raises nothing but BrokerHalted. answered: whether
        the client waits for an answer. meter: counts the worker's time; None if no quota applies.
        """
        self._broker = broker
        self._connection = connection
        self._targets = targets
        self._finish = finish
        self._answered = answered
        self._meter = meter

    def begin(self) -> bool:
        """If checking the batches takes long, let a worker thread do it, and return True. Otherwise do nothing and
        return False.

        The worker's results are stored in the request's targets; then finish() is called.
        """
        now_ms = self._broker.clock.now_ms()
        inside = [
            (target, target.partition, target.partition.rules, target.part.records, amount)
            for target in self._targets.all
            if target.partition is not None and target.part.records is not None and not target.is_looked_into
            if (amount := target.partition.work_inside(target.part.records, now_ms))
        ]
        if sum(amount for *_, amount in inside) <= FEW_RECORDS:
            return False
        budget = DecompressionBudget(sum(len(records) for *_, records, _ in inside))

        def work() -> None:
            """Check each batch in the worker thread, and store its result. Ends early if the client has left."""
            for target, partition, rules, records, _ in inside:
                if not self._is_wanted():
                    return
                target.looked_into(partition, rules, _look_into(partition, records, now_ms, budget))

        self._connection.hold()
        job = work if self._meter is None else self._meter.measure(work)
        self._broker.records_executor.submit(job, self._go_on_with, owner=self._connection, wanted=self._is_wanted)
        return True

    def _is_wanted(self) -> bool:
        """Return whether the request is still to be carried out: the broker is not stopping, and the client has not
        left if it waits for an answer.

        Also called by worker threads.
        """
        if self._broker.housekeeping.ending:
            return False
        return not (self._answered and self._connection.has_left())

    def _go_on_with(self, result: BaseException | None) -> None:
        """Finish the request when the worker thread is done; drop it if the client has left.

        result: the exception that the worker raised, or None. If topic or rules have changed meanwhile, the batches are
        checked again.
        """
        broker, connection = self._broker, self._connection
        if not self._is_wanted():
            connection.hang_up()
            return
        try:
            if isinstance(result, BaseException):
                raise result
            self._targets.look_up()
            if self.begin():  # the rules have changed, or the topic is another one of that name
                return
            self._finish()
        except BrokerHalted:
            return
        except Exception as error:
            broker.metrics.failed(error)
            log.error("a request of %s failed, cutting its connection", connection.client_host, exc_info=error)
            connection.abort()
            return
        connection.go_on()


def _look_into(
    partition: Partition, records: memoryview, now_ms: int, budget: DecompressionBudget
) -> Batch | BaseException:
    """Call Partition.accept() in the worker thread. Returns what it returns, or the exception that it raises."""
    try:
        return partition.accept(records, now_ms, budget)
    except Exception as error:
        forget_locals(error)  # which may be megabytes
        return error
