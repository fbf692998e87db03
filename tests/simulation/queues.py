"""In each tenth seed: a share group, whose members work on two partitions and do what no good client does.

Some say late what became of a record, or twice, or of records that others have; some vanish, some open their session
again while requests of the one before are on their way. Workers acknowledge inside transactions that write as well.
What they are given is an Acquire, what they say an Acknowledge; `share_rules.py` says what must hold.
"""

import asyncio
from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.configs import IncrementalAlterConfigsRequest
from fencepost.protocol.messages.share_fetch import AcknowledgementBatch, ShareAcknowledgeRequest, ShareFetchRequest
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from fencepost.protocol.messages.share_transactions import TxnShareAcknowledgeRequest
from produce_requests import create
from share_client import got
from simulation.history import Op, Place
from simulation.lines import NOT_SENT, Caller, Unanswered
from simulation.plain_clients import PlainProducer, values_of
from simulation.share_rules import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Ack,
    Acknowledge,
    Acquire,
    Drained,
    Queue,
)
from simulation.share_watch import Lasting
from simulation.txn_clients import Incarnation, Supervisor
from simulation.world import SHARE_LOCK_MS, SHARE_WINDOW, World

EVERY, FIRST = 10, 6  # seeds
TOPIC, GROUP = "queue", "sharing"
PLACES: list[Place] = [(TOPIC, 0), (TOPIC, 1)]
MEMBERS, WORKERS = 4, 3
FINAL, AT_ONCE = -1, 0  # epochs of sessions; max_wait_ms
DRAINED_AFTER = 6  # looks of half a second that find nothing
MAX_LOOKS = 1_000
GROUP_RESOURCE = 32
DELIVERIES = (25, 4)  # by seed: so many that nothing is archived for it, or so few that much is
CONFIGS = {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}


def has_queue(world: World) -> bool:
    return world.only_queues or world.seed % EVERY == FIRST


def queue_clients_of(world: World, keeper: "QueueKeeper") -> list[Any]:
    """Return the scripted clients of the share group: its members and workers, and those that write what they read."""
    members = [QueueMember(world, f"member{number}", keeper) for number in range(MEMBERS)]
    for each in members:
        each.others = members
    workers = [working(world, f"worker{number}", keeper) for number in range(WORKERS)]
    return [keeper, *members, *workers, QueueWriter(world, keeper), writing(world, "queue-tx", keeper)]


def working(world: World, name: str, keeper: "QueueKeeper") -> Supervisor:
    def make(number: int, tv: int) -> QueueWorker:
        return QueueWorker(world, name, number, keeper)

    return Supervisor(world, name, 2, make)


def writing(world: World, name: str, keeper: "QueueKeeper") -> Supervisor:
    def make(number: int, tv: int) -> TransactionalWriter:
        return TransactionalWriter(world, name, number, tv, keeper)

    return Supervisor(world, name, 2, make)


class QueueKeeper:
    """Makes the topic and the group. In the end it reads the queue until nothing more is given."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.caller = Caller(world, "queue keeper")
        self.topic_id = b""
        self.made = asyncio.Event()
        world.looks_before_the_end.append(self.drain)
        for place in PLACES:
            world.looks.append(lambda place=place: place)

    async def run(self) -> None:
        await self._insist(create(TOPIC, len(PLACES)), lambda answer: _is_there(answer.topics[0].error_code))
        asked = MetadataRequest(topics=[MetadataRequest.Topic(name=TOPIC)], allow_auto_topic_creation=False)
        self.topic_id = (await self._insist(asked, lambda answer: not answer.topics[0].error_code)).topics[0].topic_id
        Resource = IncrementalAlterConfigsRequest.Resource
        limit = DELIVERIES[self.world.seed // EVERY % len(DELIVERIES)]
        configs = CONFIGS | {"share.delivery.count.limit": str(limit)}
        entries = [Resource.Config(name=name, config_operation=0, value=value) for name, value in configs.items()]
        resource = Resource(resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=entries)
        await self._insist(
            IncrementalAlterConfigsRequest(resources=[resource]), lambda answer: not answer.responses[0].error_code
        )
        await self._insist(joining("keeper"), lambda answer: not answer.error_code and _is_assigned(answer))
        for place in PLACES:
            self.world.history.invoke("queue keeper", Queue(GROUP, place, SHARE_LOCK_MS, limit, SHARE_WINDOW)).ok()
        self.made.set()

    async def _insist(self, request: Any, is_done: Any) -> Any:
        while True:
            try:
                answer = await self.caller.ask(request)
            except Unanswered:
                continue
            if is_done(answer):
                return answer
            await asyncio.sleep(0.1)

    async def drain(self) -> None:
        for number, place in enumerate(PLACES):
            op = self.world.history.invoke("final", Drained(GROUP, place))
            session = Session(self.world, f"drainer{number}", place, self.topic_id)
            nothing = 0
            for _ in range(MAX_LOOKS):
                given = await session.fetch(max_wait_ms=500)
                nothing = 0 if given else nothing + 1
                if nothing == DRAINED_AFTER:
                    break
                if given:
                    await session.acknowledge([(offset, offset, ACCEPT) for offset in given])
                else:
                    await asyncio.sleep(0.5)
            else:
                raise AssertionError(f"{place} cannot be drained")
            op.ok()


def joining(member: str, epoch: int = 0) -> ShareGroupHeartbeatRequest:
    names = [TOPIC] if epoch == 0 else None
    return ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id=member, member_epoch=epoch, subscribed_topic_names=names
    )


def _is_there(code: int) -> bool:
    return code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def _is_assigned(answer: Any) -> bool:
    assignment = answer.assignment
    return assignment is not None and any(each.partitions for each in assignment.topic_partitions)


class Session:
    """A member's share session of one place. An unanswered request may end it."""

    def __init__(self, world: World, member: str, place: Place, topic_id: bytes) -> None:
        self.world = world
        self.member = member
        self.place = place
        self.held: list[int] = []  # what it was given and has said nothing about
        self._topic_id = topic_id
        self._caller = Caller(world, member)
        self._epoch = 0
        self._lasting = Lasting(world.history, GROUP, member)
        self._line: Any = None

    async def fetch(
        self, max_wait_ms: int = AT_ONCE, max_records: int = 500, mode: int = 0, acks: list[Ack] | None = None
    ) -> list[int]:
        """Fetch, with these acknowledgements in the same request; without them if the request opens a session. Returns
        the offsets of the records that it was given.
        """
        if self._epoch == 0:
            acks = None
        history = self.world.history
        said = history.invoke(self.member, self._said(acks)) if acks else None
        op = history.invoke(self.member, Acquire(GROUP, self.place, self.member))
        part = ShareFetchRequest.Topic.Partition(
            partition_index=self.place[1], acknowledgement_batches=_batches(acks or [])
        )
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.member,
            share_session_epoch=self._epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=mode,
            topics=[ShareFetchRequest.Topic(topic_id=self._topic_id, partitions=[part])],
        )
        answer = await self._ask(request, [op, *([said] if said else [])])
        if answer is None:
            return []
        found = got(answer).get(self.place[1])
        if said is not None:
            _settle(said, found.ack_error if found else 0)
        given = [
            (offset, found.values[offset], count)
            for first, last, count in (found.ranges if found else ())
            for offset in range(first, last + 1)
            if offset in found.values
        ]
        op.ok(tuple(given))
        self.held += [offset for offset, _, _ in given]
        return [offset for offset, _, _ in given]

    async def acknowledge(self, acks: list[Ack]) -> None:
        """Acknowledge without fetching. In a session that is not open nothing is sent."""
        if self._epoch == 0 or not acks:
            return
        said = self.world.history.invoke(self.member, self._said(acks))
        answer = await self._ask(self._acknowledging(acks, self._epoch), [said])
        if answer is not None:
            _settle(said, next((part.error_code for topic in answer.responses for part in topic.partitions), 0))

    async def close(self) -> None:
        """End the session with a last request, and close the connection."""
        if self._epoch:
            self.ends()
            try:
                await self._caller.ask(self._acknowledging([], FINAL))
            except Unanswered:
                pass
        self._caller.close()

    def vanish(self) -> None:
        self.ends()
        self._caller.close()

    def ends(self) -> None:
        """Note that the session may be over now. The next fetch opens a new one, which surely ends this one."""
        self._lasting.ends()
        self._epoch = 0
        self.held.clear()

    def _said(self, acks: list[Ack]) -> Acknowledge:
        said = {offset for first, last, kind in acks if kind != RENEW for offset in range(first, last + 1)}
        self.held = [offset for offset in self.held if offset not in said]
        return Acknowledge(GROUP, self.place, self.member, tuple(acks))

    def _acknowledging(self, acks: list[Ack], epoch: int) -> ShareAcknowledgeRequest:
        Topic = ShareAcknowledgeRequest.Topic
        part = Topic.Partition(partition_index=self.place[1], acknowledgement_batches=_batches(acks))
        return ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.member,
            share_session_epoch=epoch,
            is_renew_ack=any(kind == RENEW for _, _, kind in acks),
            topics=[Topic(topic_id=self._topic_id, partitions=[part])] if acks else [],
        )

    async def _ask(self, request: Any, ops: list[Op]) -> Any:
        """Send a request of the session. Returns the answer; None if there is none, or an error for the whole of it:
        then these operations are ended, and the session may be over.
        """
        if self._epoch and (self._line is None or self._line.closed):
            for op in ops:
                op.fail()  # nothing is sent
            self.ends()
            return None
        try:
            answer = await self._caller.ask(request)
        except Unanswered as error:
            is_sent = str(error) != NOT_SENT
            for op in ops:
                op.info() if is_sent else op.fail()
            self._lasting.is_unsure = self._lasting.is_unsure or is_sent
            self.ends()
            return None
        if answer.error_code:
            self.world.met[f"queue: refused with {answer.error_code}"] += 1
            for op in ops:
                op.fail(answer.error_code)
            self.ends()
            return None
        self._line = self._caller._line
        self._lasting.answered(ops[0].invoked)
        self._epoch += 1
        return answer


def _settle(said: Op, code: int) -> None:
    if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR):
        said.info(code) if code else said.ok()
    else:
        said.fail(code)


def _batches(acks: list[Ack]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last, kind in sorted(acks)
    ]


class QueueMember:
    """A member with one life after the other, each with an id of its own. In half of its lives it joins the group."""

    def __init__(self, world: World, name: str, keeper: QueueKeeper) -> None:
        self.world = world
        self.name = name
        self.keeper = keeper
        self.rng = world.rng(name)
        self.others: list[QueueMember] = []
        self.session: Session | None = None

    async def run(self) -> None:
        await self.keeper.made.wait()
        life = 0
        while not self.world.over:
            life += 1
            member = f"{self.name}/{life}"
            self.session = Session(self.world, member, self.rng.choice(PLACES), self.keeper.topic_id)
            joins = self.rng.random() < 0.5
            if joins:
                await self._beat(member, 0)
            for _ in range(self.rng.randint(5, 40)):
                if self.world.over:
                    break
                await self._step(self.session)
                await asyncio.sleep(self.rng.choice((0, 0, 0.02, 0.2, 0.7)))
            if joins:
                await self._beat(member, -1)  # what it has is its own until its session ends
            if self.world.over and self.rng.random() < 0.5:
                await self.session.fetch()
                return  # keeps its connection and says nothing more: the locks have to end by themselves
            await self.session.close() if self.rng.random() < 0.5 else self.session.vanish()

    async def _beat(self, member: str, epoch: int) -> None:
        caller = Caller(self.world, member)
        try:
            await caller.ask(joining(member, epoch))
        except Unanswered:
            pass
        caller.close()

    async def _step(self, session: Session) -> None:
        rng = self.rng
        what = rng.random()
        if what < 0.05:
            session.ends()  # and is opened again, over the same connection
        elif what < 0.1 and (foreign := self._of_others(session)):
            await session.acknowledge([(foreign, foreign, rng.choice((ACCEPT, RELEASE, REJECT)))])
        elif what < 0.2 and session.held:
            await asyncio.sleep(SHARE_LOCK_MS / 1000 * rng.uniform(0.5, 1.3))
            await session.acknowledge(self._acks(session))
        elif what < 0.5 and session.held:
            acks = self._acks(session)
            await session.acknowledge(acks)
            if rng.random() < 0.2:
                self.world.met["queue: said twice"] += 1
                await session.acknowledge(acks)
        else:
            acks = self._acks(session, renews=False) if session.held and rng.random() < 0.7 else None
            given = await session.fetch(rng.choice((AT_ONCE, 300)), rng.choice((1, 5, 50)), rng.choice((0, 1)), acks)
            self.world.met["queue: given"] += len(given)

    def _acks(self, session: Session, *, renews: bool = True) -> list[Ack]:
        """Choose acknowledgements for some of the records that it holds, each of any kind."""
        rng = self.rng
        some = rng.sample(session.held, rng.randint(1, len(session.held)))
        kinds = (ACCEPT,) * 6 + (RELEASE, RELEASE, REJECT, GAP) + (RENEW,) * renews
        return [(offset, offset, rng.choice(kinds)) for offset in sorted(set(some))]

    def _of_others(self, session: Session) -> int | None:
        held = [
            offset
            for other in self.others
            if other is not self and other.session is not None and other.session.place == session.place
            for offset in other.session.held
        ]
        return self.rng.choice(held) if held else None


class QueueWorker(Incarnation):
    """It takes records and acknowledges them in a transaction that writes what was made of them."""

    def __init__(self, world: World, transactional_id: str, number: int, keeper: QueueKeeper) -> None:
        super().__init__(world, transactional_id, number, 2, [("left", 0)])
        self.keeper = keeper
        self._lives = 0
        self._session: Session | None = None

    async def run(self) -> None:
        await self.keeper.made.wait()
        await super().run()
        if self._session is not None:
            self._session.vanish()

    async def fill(self, txn: str) -> tuple[bool, bool] | None:
        session = self._session
        if session is None or self.rng.random() < 0.05:
            self._lives += 1
            member = f"{self.name}/{self._lives}"
            if session is not None:
                session.vanish()
            session = self._session = Session(self.world, member, self.rng.choice(PLACES), self.keeper.topic_id)
        given = await session.fetch(300, self.rng.choice((1, 5, 20)), self.rng.choice((0, 1)))
        if not given:
            return None
        if self.rng.random() < 0.1:
            await asyncio.sleep(SHARE_LOCK_MS / 1000 * self.rng.uniform(0.5, 1.2))
        if not (given := [offset for offset in given if offset in session.held]):
            return None
        work = [self._write(txn), self._acknowledge(txn, session, given)]
        if self.rng.random() < 0.5:
            work.reverse()
        first, second = [await each for each in work]
        sure, good = first[0] and second[0], first[1] and second[1]
        if good:
            sure &= await self._go_too_far(txn, session, given)
        return sure, good

    async def _go_too_far(self, txn: str, session: Session, pending: list[int]) -> bool:
        """Sometimes do what a worker should not do while its records are pending in its transaction.

        Returns whether the outcome is known of what it asked of the transaction.
        """
        what = self.rng.random()
        if what < 0.1:  # says outside of it what became of them
            self.world.met["queue: said of pending"] += 1
            kind = self.rng.choice((ACCEPT, RELEASE, REJECT))
            await session.acknowledge([(offset, offset, kind) for offset in pending])
        elif what < 0.2:
            self.world.met["queue: acknowledged twice"] += 1
            is_known, _ = await self._acknowledge(txn, session, pending)
            return is_known
        elif what < 0.3:  # its session ends, and is opened again by the next fetch
            session.ends()
        elif what < 0.4:
            self._session = None
            await session.close() if self.rng.random() < 0.5 else session.vanish()
        return True

    async def _write(self, txn: str) -> tuple[bool, bool]:
        return await self.deliver([self.batch(txn, self.places[0], values_of(self, self.rng))])

    async def _acknowledge(self, txn: str, session: Session, given: list[int]) -> tuple[bool, bool]:
        """Acknowledge records in the transaction. Returns (is the outcome known?, was it accepted?)."""
        kind = self.rng.choice((ACCEPT,) * 9 + (REJECT,))
        acks = [(offset, offset, kind) for offset in given]
        session.held = [offset for offset in session.held if offset not in given]
        op = self.history.invoke(self.name, Acknowledge(GROUP, session.place, session.member, tuple(acks), txn))
        Topic = TxnShareAcknowledgeRequest.Topic
        part = Topic.Partition(partition_index=session.place[1], acknowledgement_batches=_batches(acks))
        request = TxnShareAcknowledgeRequest(
            transactional_id=self.transactional_id,
            group_id=GROUP,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            member_id=session.member,
            topics=[Topic(topic_id=self.keeper.topic_id, partitions=[part])],
        )
        code, _, unsure = await self.persist(self.coordinator, request, 0, _code_of)
        if code == ErrorCode.NONE:
            op.ok()
        elif unsure or code is None:
            op.info()
        else:
            op.fail(code)
        self.world.met[f"queue: in a transaction {op.outcome}"] += 1
        return op.outcome != "info", op.outcome == "ok"


def _code_of(answer: Any) -> int:
    codes = [int(answer.error_code), *(int(part.error_code) for topic in answer.topics for part in topic.partitions)]
    return next((code for code in codes if code), 0)


class QueueWriter(PlainProducer):
    """Writes to the queue, without transactions."""

    def __init__(self, world: World, keeper: QueueKeeper) -> None:
        super().__init__(world, "queue-plain", PLACES)
        self.keeper = keeper

    async def run(self) -> None:
        await self.keeper.made.wait()
        await super().run()


class TransactionalWriter(Incarnation):
    """Writes to the queue in transactions, some of which abort."""

    def __init__(self, world: World, name: str, number: int, tv: int, keeper: QueueKeeper) -> None:
        super().__init__(world, name, number, tv, PLACES)
        self.keeper = keeper

    async def run(self) -> None:
        await self.keeper.made.wait()
        await super().run()
