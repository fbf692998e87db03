"""Produce requests whose batches take long to look into, or to compress anew: a worker does that beforehand.

The rules: the worker only says what `Partition.accept` says, and changes nothing; whatever may have changed meanwhile
is looked up again; then all partitions are judged and appended in one step, as always. Until then the connection waits,
so its requests take effect in their order, and everybody else goes on. When the broker halts or stops meanwhile, or the
client leaves that waits for an answer, nothing is written: who gets no answer knows that this may be so. What a client
sent that wants no answer is written though it has left.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...effects.lanes import forget_locals
from ...protocol.batches import Batch
from ...protocol.messages.produce import ProduceRequest
from ...storage.store import BrokerHalted
from ..net.connection import Connection
from ..topics.partition import FEW_RECORDS, AppendRules, Partition
from .decompression_budget import DecompressionBudget

if TYPE_CHECKING:
    from ..broker import Broker

log = logging.getLogger("fencepost.broker")

Part = ProduceRequest.Topic.Partition
Placed = tuple[Part, Partition]  # a part of a request, and where it goes as of now


class Accepted:
    """What workers said of batches of one request; it counts while partition and rules are the ones they saw."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[Partition, AppendRules, Batch | BaseException]] = {}  # by the part's identity

    def add(self, part: Part, partition: Partition, rules: AppendRules, said: Batch | BaseException) -> None:
        self._said[id(part)] = partition, rules, said

    def holds(self, part: Part, partition: Partition) -> bool:
        said = self._said.get(id(part))
        return said is not None and said[0] is partition and said[1] is partition.rules

    def accept(self, part: Part, partition: Partition, records: memoryview, wall_ms: int) -> Batch:
        """As Partition.accept, which is asked if no worker was. Raises what it raises."""
        if not self.holds(part, partition):
            return partition.accept(records, wall_ms)
        said = self._said[id(part)][2]
        if isinstance(said, BaseException):
            raise said
        return said


class LongProduce:
    """One request that waits for workers."""

    def __init__(
        self,
        broker: "Broker",
        connection: Connection,
        find: Callable[[], list[Placed]],
        finish: Callable[[Accepted], None],
        *,
        answered: bool,
    ) -> None:
        """find: where the parts of the request go now. finish: judge and append; it may not raise but for a halt.

        answered: whether the client waits for an answer.
        """
        self.accepted = Accepted()
        self._broker = broker
        self._connection = connection
        self._find = find
        self._finish = finish
        self._answered = answered

    def begin(self) -> bool:
        """Give a worker what is long. False: nothing is, and nothing was done."""
        now_ms = self._broker.clock.now_ms()
        inside = [
            (part, partition, partition.rules, part.records, partition.work_inside(part.records, now_ms))
            for part, partition in self._find()
            if part.records is not None and not self.accepted.holds(part, partition)
        ]
        if sum(work for *_, work in inside) <= FEW_RECORDS:
            return False
        long = [(part, partition, rules, records) for part, partition, rules, records, work in inside if work]
        budget = DecompressionBudget(sum(len(records) for *_, records in long))

        def work() -> None:
            for part, partition, rules, records in long:
                if not self._wanted():
                    return
                self.accepted.add(part, partition, rules, _said(partition, records, now_ms, budget))

        self._connection.hold()
        self._broker.records_lane.submit(work, self._worked, owner=self._connection, wanted=self._wanted)
        return True

    def _wanted(self) -> bool:
        """Whether it still matters what becomes of the request. Also called by workers."""
        if self._broker.housekeeping.ending:
            return False
        return not (self._answered and self._connection.has_left())

    def _worked(self, result: BaseException | None) -> None:
        broker, connection = self._broker, self._connection
        if not self._wanted():
            connection.hang_up()
            return
        try:
            if isinstance(result, BaseException):
                raise result
            if self.begin():  # the rules have changed, or the topic is another one of that name
                return
            self._finish(self.accepted)
        except BrokerHalted:
            return
        except Exception as error:
            broker.metrics.failed(error)
            log.error("a request of %s failed, cutting its connection", connection.client_host, exc_info=error)
            connection.abort()
            return
        connection.go_on()


def _said(partition: Partition, records: memoryview, now_ms: int, budget: DecompressionBudget) -> Batch | BaseException:
    """What accept gives or raises; on the loop, it will look the same."""
    try:
        return partition.accept(records, now_ms, budget)
    except Exception as error:
        forget_locals(error)
        return error
