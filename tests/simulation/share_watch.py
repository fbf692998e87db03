"""Share consumers of the SDK as seen from beside their connections: what they ask of the broker, and what it answers.

So the rules for scripted members are those for the SDK's as well: each fetch is an Acquire, what it says of records an
Acknowledge, also in a transaction; what it then tells its application is in `sdk_queues.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fencepost.client.net.connection import Connection
from fencepost.client.transactions.requests import maybe_done
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from share_client import got
from simulation.history import History, Op, Place
from simulation.processes import ProcessNet
from simulation.share_rules import Ack, Acknowledge, Acquire, SessionEnd

OPENS, CLOSES = 0, -1  # epochs of sessions

Settled = Callable[[Any], None]
"""What is done with an answer, or an error."""


class Lasting:
    """Since when a member's share session surely lasts. A request without an answer may open or end one at any time."""

    def __init__(self, history: History, group: str, member: str) -> None:
        self.is_unsure = False
        self._history = history
        self._group = group
        self._member = member
        self._since = history.moment()
        self._ended: list[Op] = []

    def ends(self) -> None:
        """Note that the session may be over from now on."""
        self._ended.append(self._history.invoke(self._member, SessionEnd(self._group, self._member, self._since)))

    def answered(self, since: int) -> None:
        """Note that a request that was sent at this moment was answered: sessions that may have ended before are
        over.
        """
        self._since = since
        if not self.is_unsure:
            for op in self._ended:
                op.ok()
            self._ended.clear()


class WatchedNet(ProcessNet):
    """A network that shows `watch` each connection of the SDK before it is used."""

    watch: Callable[[Connection], None] = staticmethod(lambda connection: None)

    async def connect(self, *given: Any, **more: Any) -> Any:
        made = await super().connect(*given, **more)
        if isinstance(made[1], Connection):
            self.watch(made[1])
        return made


class ShareWatch:
    """Watches the share consumers of one process. txn: the transaction for acknowledgements in one."""

    def __init__(self, history: History, name: str, group: str, topic_id: Callable[[], bytes], places: Any) -> None:
        self.txn: str | None = None
        self._history = history
        self._name = name
        self._group = group
        self._topic_id = topic_id
        self._places: Sequence[Place] = places
        self._open: dict[str, Lasting] = {}  # by member, whose session may last
        self._known: dict[str, Lasting] = {}

    def connected(self, connection: Connection) -> None:
        send = connection.send

        def watched(request: Any, version: int, **more: Any) -> Any:
            settle = self._begin(request)
            future = send(request, version, **more)
            if settle is not None:
                future.add_done_callback(settle)
            return future

        connection.send = watched  # type: ignore[method-assign]

    def over(self, member: str | None = None) -> None:
        """Note that the session of this member is over, or those of all members."""
        for name in [name for name in self._open if member in (None, name)]:
            self._open.pop(name).ends()

    def _begin(self, request: Any) -> Settled | None:
        if isinstance(request, ShareFetchRequest):
            return self._fetch(request)
        if isinstance(request, ShareAcknowledgeRequest):
            return self._acknowledge(request)
        if isinstance(request, TxnShareAcknowledgeRequest):
            return self._acknowledge_in_transaction(request)
        return None

    def _lasting(self, member: str, epoch: int) -> Lasting:
        if epoch in (OPENS, CLOSES):
            self.over(member)
        lasting = self._known.setdefault(member, Lasting(self._history, self._group, member))
        if epoch != CLOSES:
            self._open[member] = lasting
        return lasting

    def _fetch(self, request: ShareFetchRequest) -> Settled:
        member = request.member_id
        lasting = self._lasting(member, request.share_session_epoch)
        said = self._said(request, None)
        asked = {
            place[1]: self._history.invoke(self._name, Acquire(self._group, place, member)) for place in self._places
        }
        since = min(op.invoked for op in (*said.values(), *asked.values()))

        def settle(future: Any) -> None:
            answer = self._answer_or_end(future, [*said.values(), *asked.values()], lasting, since)
            if answer is None:
                return
            found = got(answer)
            for index, op in said.items():
                _settle(op, found[index].ack_error if index in found else int(ErrorCode.UNKNOWN_SERVER_ERROR))
            for index, op in asked.items():
                part = found.get(index)
                ranges = part.ranges if part else ()
                op.ok(tuple((at, value, count) for at, value, count in _records(ranges, part.values if part else {})))

        return settle

    def _acknowledge(self, request: ShareAcknowledgeRequest) -> Settled:
        lasting = self._lasting(request.member_id, request.share_session_epoch)
        said = self._said(request, None)
        since = min((op.invoked for op in said.values()), default=self._history.moment())

        def settle(future: Any) -> None:
            answer = self._answer_or_end(future, list(said.values()), lasting, since)
            if answer is not None:
                codes = {
                    part.partition_index: part.error_code for topic in answer.responses for part in topic.partitions
                }
                for index, op in said.items():
                    _settle(op, codes.get(index, int(ErrorCode.UNKNOWN_SERVER_ERROR)))

        return settle

    def _acknowledge_in_transaction(self, request: TxnShareAcknowledgeRequest) -> Settled:
        assert self.txn is not None
        said = self._said(request, self.txn)

        def settle(future: Any) -> None:
            answer = self._answer_or_end(future, list(said.values()), None, 0)
            if answer is not None:
                codes = _codes(answer.topics)
                for index, op in said.items():
                    _settle(op, codes.get(index, 0))

        return settle

    def _said(self, request: Any, txn: str | None) -> dict[int, Op]:
        """Note the acknowledgements in this request. Returns the operations by partition."""
        found: dict[int, Op] = {}
        for topic in request.topics:
            assert topic.topic_id == self._topic_id()
            for part in topic.partitions:
                acks: list[Ack] = []
                for each in part.acknowledgement_batches:
                    (kind,) = each.acknowledge_types
                    acks.append((each.first_offset, each.last_offset, kind))
                place = (self._places[0][0], part.partition_index)
                if acks:
                    what = Acknowledge(self._group, place, request.member_id, tuple(acks), txn)
                    found[part.partition_index] = self._history.invoke(self._name, what)
        return found

    def _answer_or_end(self, future: Any, ops: list[Op], lasting: Lasting | None, since: int) -> Any:
        """Return the answer. If there is none, or it has an error for the whole request, end these operations, with an
        unknown result if the request may have been carried out, and return None.

        lasting: the member's session, if the request belongs to one; it is noted whether the session got an answer.
        since: when the request was sent.
        """
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            is_sent = not isinstance(error, KafkaError) or maybe_done(error)
            for op in ops:
                op.info() if is_sent else op.fail()
            if lasting is not None:
                lasting.is_unsure = lasting.is_unsure or is_sent
            return None
        answer = future.result()
        if answer.error_code:
            for op in ops:
                _settle(op, answer.error_code)
            return None
        if lasting is not None:
            lasting.answered(since)
        return answer


def _records(ranges: Any, values: dict[int, str]) -> Any:
    for first, last, count in ranges:
        yield from ((at, values[at], count) for at in range(first, last + 1) if at in values)


def _codes(topics: Any) -> dict[int, int]:
    return {part.partition_index: part.error_code for topic in topics for part in topic.partitions}


def _settle(said: Op, code: int) -> None:
    if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR):
        said.info(code) if code else said.ok()
    else:
        said.fail(code)
