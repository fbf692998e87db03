"""What is written into a transaction besides records: offsets, and acknowledgements of a share group's records.

The rules: one call at a time, with all its retries; the end of the transaction waits for it (`lock`). Offsets may be
sent again without a response. Acknowledgements never: a broker takes each of them once, so a request that may have
arrived and has no response leaves only the abort, which undoes it wherever it is. After a refusal nothing was done, so
that one that says "not now" is followed by another attempt. Sources: Kafka's TransactionManager; KIP-447, KIP-1289.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from ...protocol.messages.share_fetch import AcknowledgementBatch
from ..errors import KafkaError, is_retriable
from ..net.coordinators import CoordinatorKind
from ..net.retry import Deadline
from ..values import ConsumerGroupMetadata
from .answers import Verdict, of_acknowledgement, refused, worst
from .machine import ClientTransaction
from .requests import Codes, TransactionRequests, maybe_done
from .sources import FromShareGroup, Offsets, SharedRanges
from .table import OPEN
from .tries import Tries

MAX_RANGES = 10_000
"""The ranges of acknowledgements that a broker takes in one request."""


class Writes:
    """Sends offsets and acknowledgements into a transaction.

    explain: called before the error of a fenced producer is raised, to find the reason. lock: held during a write.
    """

    def __init__(
        self,
        machine: ClientTransaction,
        requests: TransactionRequests,
        tries: Tries,
        explain: Callable[[], Awaitable[None]],
    ) -> None:
        """machine: the transaction's state. explain: awaited when a write has failed, to find out who fenced the
        producer and put that into the machine's error.
        """
        self._machine = machine
        self._requests = requests
        self._tries = tries
        self._explain = explain
        self.lock = asyncio.Lock()

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata) -> None:
        """Add the group to the transaction if its version is 1, and send the offsets. Raises the transaction's
        error.
        """
        machine, group_id = self._machine, group.group_id
        target: tuple[CoordinatorKind, str] = ("group", group_id)
        deadline = self._tries.deadline()
        check = partial(self._requests.check_offsets, group_id)
        await self.retry(check, target, deadline, "finding the group's coordinator")
        machine.attempts_offsets()
        if machine.version < 2 and group_id not in machine.groups:
            ask = partial(self._requests.add_offsets, group_id)
            await self.retry(ask, self._requests.target, deadline, "AddOffsetsToTxn")
            machine.groups.add(group_id)
        ask = partial(self._requests.commit_offsets, offsets, group)
        await self.retry(ask, target, deadline, f"offsets of group {group_id!r}")

    async def retry(
        self,
        ask: Callable[[], Awaitable[Codes]],
        target: tuple[CoordinatorKind, str],
        deadline: Deadline,
        what: str,
    ) -> None:
        """Call `ask`, which sends a request and returns error codes, until all are 0. If that is impossible, fails the
        transaction and raises its error.

        target: the coordinator to look up again after an error. what: the request's name, for the error.
        """
        machine, attempt = self._machine, 0
        while machine.state in OPEN:
            code = 0
            try:
                codes = await ask()
                verdict, code = worst(codes.values())
                if verdict is Verdict.DONE:
                    return
                error = refused(codes, code)
            except KafkaError as raised:
                verdict, error = (Verdict.AGAIN if is_retriable(raised) else Verdict.ABORT), raised
            self._requests.stale(code, target)
            if verdict is not Verdict.AGAIN:
                machine.refused_write(verdict, error)
            elif not await self._tries.pause(attempt, deadline, error, code, what):
                machine.refused_write(Verdict.ABORT, self._tries.late(what, error))
            attempt += 1
        await self._explain()
        raise machine.failure()

    async def acknowledge(self, taken: FromShareGroup) -> None:
        """Send these acknowledgements of a share group's records as part of the transaction; wait for the answers.

        Raises RecordNotHeldError, with nothing sent, if the consumer no longer holds one of the records; otherwise the
        error that has failed the transaction.
        """
        send = await self.hand_over(taken)
        await send()

    async def hand_over(self, taken: FromShareGroup) -> Callable[[], Awaitable[None]]:
        """Take the unsent acknowledgements, and return a function that sends them; it raises the transaction's error.

        Raises the transaction's error if the broker cannot acknowledge in transactions, and RecordNotHeldError.
        """
        group_id = taken.group_id
        check = partial(self._requests.check_acknowledging, group_id)
        await self.retry(check, ("group", group_id), self._tries.deadline(), _acknowledging(group_id))
        return partial(self._send_acknowledgements, taken, taken.hand_over())

    async def _send_acknowledgements(self, taken: FromShareGroup, acks: SharedRanges) -> None:
        """Send all acknowledgements, in as many requests as the broker needs. Raises the transaction's error."""
        for part in in_requests(acks):
            self._machine.attempts_offsets()
            await self._send_one(taken, part, self._tries.deadline())
        if acks:
            taken.note_success()

    async def _send_one(self, taken: FromShareGroup, acks: SharedRanges, deadline: Deadline) -> None:
        """Send one request of acknowledgements until the broker has taken it. Else fails the transaction and raises."""
        machine, group_id = self._machine, taken.group_id
        target: tuple[CoordinatorKind, str] = ("group", group_id)
        attempt = 0
        while machine.state in OPEN:
            code = 0
            try:
                code, refusal = await self._requests.acknowledge(group_id, taken.member_id, acks)
                verdict = of_acknowledgement(code)
                if verdict is Verdict.DONE:
                    return
            except KafkaError as raised:
                is_unsent = is_retriable(raised) and not maybe_done(raised)
                verdict, refusal = (Verdict.AGAIN if is_unsent else Verdict.ABORT), raised
            self._requests.stale(code, target)
            what = _acknowledging(group_id)
            if verdict is not Verdict.AGAIN:
                machine.refused_write(verdict, refusal)
            elif not await self._tries.pause(attempt, deadline, refusal, code, what):
                machine.refused_write(Verdict.ABORT, self._tries.late(what, refusal))
            attempt += 1
        await self._explain()
        raise machine.failure()


def in_requests(acks: SharedRanges) -> Iterator[SharedRanges]:
    """Divide acknowledgements into lists, one for each request, with at most MAX_RANGES offset ranges in each."""
    part: list[tuple[bytes, int, list[AcknowledgementBatch]]] = []
    room = MAX_RANGES
    for topic_id, partition, ranges in acks:
        for begin in range(0, len(ranges), MAX_RANGES):
            here = ranges[begin : begin + MAX_RANGES]
            if len(here) > room:
                yield part
                part, room = [], MAX_RANGES
            part.append((topic_id, partition, here))
            room -= len(here)
    if part:
        yield part


def _acknowledging(group_id: str) -> str:
    return f"acknowledging records of share group {group_id!r}"
