"""Users that log in and may do something, and a warden that gives and takes their rights while they work.

In some seeds the broker has an authorizer and a second listener with a login. All other clients come over the first
one, as nobody in particular, who may do everything. Each request of a user is an Attempt, and each change of a right a
Change; `rights_rules.py` says what must hold.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from acl_client import creating, deleting
from fencepost.broker.security.acls import Operation, PatternType, ResourceType
from fencepost.broker.security.credentials import LEAST_ITERATIONS, Mechanism, salted_password
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest
from fencepost.protocol.messages.ledger import PrepareTxnRequest
from fencepost.protocol.messages.scram_users import AlterUserScramCredentialsRequest
from fencepost.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from fencepost.protocol.records import Record, build, records
from produce_requests import answers, create, fetch, fetched, produce
from quota_client import altering, entry
from simulation.lines import PATIENCE_S, Caller, Line, Unanswered
from simulation.plain_clients import batches_in
from simulation.rights_rules import Attempt, Change, Found, Right, may
from simulation.world import GUARDED_PORT, TXN_TIMEOUT_MS, World

TOPICS = ("guarded-a", "guarded-b")
USERS = ("alice", "bob", "carol")
IDS = ("id-of-alice", "id-of-bob")
GROUP = "guarded-group"
PASSWORD, SALT = b"secret", b"salt"
LATE_S = 8.0  # after so long no copy of a change that was not answered is on its way any more
REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


def may_log_in(user: str) -> Right:
    return Right(user, "LOGIN", "USER", user)


def may_use(user: str, transactional_id: str) -> Right:
    return Right(user, "WRITE", "TRANSACTIONAL_ID", transactional_id)


class Warden:
    """Gives and takes rights. Each change is repeated until it is acknowledged; only then the next one of that right is
    made.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng("warden")
        self.caller = Caller(world, "warden")
        self._rights = [may_log_in(user) for user in USERS]
        self._rights += [
            may(user, operation, topic) for user in USERS for operation in ("READ", "WRITE") for topic in TOPICS
        ]
        self._rights += [may_use(user, each) for user in USERS for each in IDS]
        self._held: dict[Right, bool] = dict.fromkeys(self._rights, False)
        self._settled_at: dict[Right, float] = dict.fromkeys(self._rights, 0.0)
        world.looks_before_the_end.append(self.look)

    async def run(self) -> None:
        for topic in TOPICS:
            await self._insist(create(topic, 1), lambda answer: _is_there(answer.topics[0].error_code))
        for topic in TOPICS:
            asked = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=False)
            await self._insist(asked, self._note_id)
        await self._insist(
            creating(f"allow User:* READ GROUP = {GROUP}"), lambda answer: not answer.results[0].error_code
        )
        for right in self._rights:
            if right.kind == "USER" or self.rng.random() < 0.6:
                await self._change(right)
        while not self.world.over:
            await asyncio.sleep(self.rng.choice((0.02, 0.2, 1.0)))
            if self.rng.random() < 0.1:
                await self._set_a_quota()
            settled = [each for each in self._rights if self._settled_at[each] <= self.world.loop.time()]
            logins = [each for each in settled if each.kind == "USER"]
            if settled and (self.rng.random() < 0.9 or not logins):
                await self._change(self.rng.choice(settled))
            elif logins:
                await self._change(self.rng.choice(logins))
        self.caller.close()

    def _note_id(self, answer: Any) -> bool:
        (found,) = answer.topics
        if not found.error_code:
            self.world.topic_names[found.topic_id] = found.name
        return not found.error_code

    async def _change(self, right: Right) -> None:
        is_given = not self._held[right]
        if right.kind == "USER":
            request, codes = _user(right.user, is_given), lambda answer: [each.error_code for each in answer.results]
        elif is_given:
            rule = f"allow User:{right.user} {right.operation} {right.kind} = {right.name}"
            request, codes = creating(rule), lambda answer: [each.error_code for each in answer.results]
        else:
            request, codes = _taking(right), lambda answer: [each.error_code for each in answer.filter_results]
        op = self.world.history.invoke("warden", Change(right, is_given))
        if await self._insist(request, lambda answer: not set(codes(answer)) - {0, ErrorCode.RESOURCE_NOT_FOUND}):
            self._settled_at[right] = self.world.loop.time() + LATE_S
        op.ok()
        self._held[right] = is_given

    async def _insist(self, request: Any, is_done: Callable[[Any], bool]) -> bool:
        """Send the request until its answer says that it is done. Returns whether an attempt was not answered, so that
        it may still arrive.
        """
        unsure = False
        while True:
            try:
                if is_done(await self.caller.ask(request)):
                    return unsure
            except Unanswered:
                unsure = True
            await asyncio.sleep(0.05)

    async def _set_a_quota(self) -> None:
        user, rate = self.rng.choice(USERS), self.rng.choice((None, 500.0, 5_000.0))
        try:
            await self.caller.ask(altering(entry(f"user={user}", producer_byte_rate=rate)))
        except Unanswered:
            pass

    async def look(self) -> None:
        """Read all values in the guarded topics, as the result of Found."""
        op = self.world.history.invoke("warden", Found())
        values: list[str] = []
        for topic in TOPICS:
            offset, end = 0, 1
            while offset < end:
                try:
                    part = fetched(await self.caller.ask(fetch(topic, offset), 11))
                except Unanswered:
                    continue
                assert part.error_code == 0, part
                end = part.high_watermark
                for batch in batches_in(part):
                    offset = batch.last_offset + 1
                    if not batch.is_control:
                        values += [(record.value or b"").decode() for record in records(batch)]
        op.ok(tuple(values))
        self.caller.close()


def _is_there(code: int) -> bool:
    return code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)


def _user(name: str, is_given: bool) -> AlterUserScramCredentialsRequest:
    mechanism = Mechanism.SHA_256
    if not is_given:
        deletion = AlterUserScramCredentialsRequest.Deletion(name=name, mechanism=mechanism)
        return AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[])
    upsertion = AlterUserScramCredentialsRequest.Upsertion(
        name=name,
        mechanism=mechanism,
        iterations=LEAST_ITERATIONS,
        salt=SALT,
        salted_password=salted_password(mechanism, PASSWORD, SALT, LEAST_ITERATIONS),
    )
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])


def _taking(right: Right) -> Any:
    return deleting(
        {
            "principal_filter": f"User:{right.user}",
            "operation": Operation[right.operation],
            "resource_type_filter": ResourceType[right.kind],
            "pattern_type_filter": PatternType.LITERAL,
            "resource_name_filter": right.name,
        }
    )


class UserCaller(Caller):
    """A Caller that logs in on each connection. Raises Unanswered if the login is refused."""

    def __init__(self, world: World, name: str, user: str) -> None:
        super().__init__(world, name)
        self.user = user

    async def _open(self) -> Line:
        if self._line is not None and not self._line.closed:
            return self._line
        async with asyncio.timeout(PATIENCE_S):
            _, line = await self.world.dial(Line, GUARDED_PORT)
        assert isinstance(line, Line)
        op = self.world.history.invoke(self.name, Attempt("log in", (may_log_in(self.user),)))
        message = f"\0{self.user}\0".encode() + PASSWORD
        requests = (SaslHandshakeRequest(mechanism="PLAIN"), SaslAuthenticateRequest(auth_bytes=message))
        try:
            async with asyncio.timeout(PATIENCE_S):
                for request in requests:
                    answer = await line.send(request, 1, self.name)
        except (TimeoutError, Unanswered) as error:
            line.close()
            raise OSError("not logged in") from error
        if not op.ok(not answer.error_code):
            line.close()
            raise OSError("the login is refused")
        self._line = line
        return line


class GuardedUser:
    """Writes, reads and uses transactional ids, its own and others', with or without the right."""

    def __init__(self, world: World, user: str, number: int) -> None:
        self.world = world
        self.user = user
        self.name = f"{user}#{number}"
        self.rng = world.rng(f"guarded {self.name}")
        self.caller = UserCaller(world, self.name, user)
        self._producers: dict[str, tuple[int, int]] = {}
        self._numbers = 0

    async def run(self) -> None:
        while not self.world.over:
            await asyncio.sleep(self.rng.choice((0.0, 0.05, 0.3)))
            step = self.rng.choice((self.write, self.read, self.transaction, self.transaction))
            try:
                await step()
            except Unanswered:
                continue
            if self.rng.random() < 0.1:
                self.caller.close()
        self.caller.close()

    async def ask(
        self, what: str, rights: Sequence[Right], request: Any, version: int | None, code_of: Callable[[Any], int],
        value: str = "",
    ) -> Any:  # fmt: skip
        """Send a request, as an Attempt in the history. Returns the answer, also of a refusal. Raises Unanswered."""
        op = self.world.history.invoke(self.name, Attempt(what, tuple(rights), value))
        answer = await self.caller.ask(request, version)
        op.ok(code_of(answer) not in REFUSED)
        return answer

    def value(self) -> str:
        self._numbers += 1
        return f"{self.name}/{self._numbers}"

    async def write(self) -> None:
        topic, value = self.rng.choice(TOPICS), self.value()
        request = produce(topic, self._batch(value))
        rights = [may(self.user, "WRITE", topic)]
        version = self.rng.choice((3, 9, 11, 12))
        await self.ask("produce", rights, request, version, lambda answer: answers(answer)[0][0], value)

    async def read(self) -> None:
        topic = self.rng.choice(TOPICS)
        request = fetch(topic, 0, max_wait_ms=self.rng.choice((0, 0, 300)), min_bytes=self.rng.choice((1, 1 << 20)))
        rights = [may(self.user, "READ", topic)]
        await self.ask("fetch", rights, request, 11, lambda answer: fetched(answer).error_code)

    async def transaction(self) -> None:
        """Take one step of a transaction: whoever may use its id may fence it, write, prepare and end."""
        transactional_id = self.rng.choice(IDS)
        right = may_use(self.user, transactional_id)
        known = self._producers.get(transactional_id)
        if known is None or self.rng.random() < 0.2:
            init = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=TXN_TIMEOUT_MS,
                producer_id=-1,
                producer_epoch=-1,
            )
            answer = await self.ask("init", [right], init, 5, _code)
            if not answer.error_code:
                self._producers[transactional_id] = answer.producer_id, answer.producer_epoch
            return
        await self.rng.choice((self._write_in, self._end, self._prepare))(transactional_id, right, *known)

    async def _write_in(self, transactional_id: str, right: Right, producer_id: int, epoch: int) -> None:
        topic, value = self.rng.choice(TOPICS), self.value()
        batch = self._batch(value, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
        request = produce(topic, batch, transactional_id=transactional_id)
        rights = [right, may(self.user, "WRITE", topic)]
        await self.ask("produce in", rights, request, 12, lambda answer: answers(answer)[0][0], value)

    async def _end(self, transactional_id: str, right: Right, producer_id: int, epoch: int) -> None:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.rng.random() < 0.5,
        )
        answer = await self.ask("end", [right], request, 5, _code)
        if not answer.error_code:
            self._producers[transactional_id] = answer.producer_id, answer.producer_epoch
        elif answer.error_code not in REFUSED:
            self._producers.pop(transactional_id, None)

    async def _prepare(self, transactional_id: str, right: Right, producer_id: int, epoch: int) -> None:
        request = PrepareTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            ledger_key=transactional_id,
            number=1,
            prepared_timeout_ms=TXN_TIMEOUT_MS,
        )
        await self.ask("prepare", [right], request, 0, _code)
        self._producers.pop(transactional_id, None)

    def _batch(self, value: str, **more: Any) -> bytes:
        return build([Record(0, self.world.clock.now_ms(), None, value.encode())], **more)


def _code(answer: Any) -> int:
    return int(answer.error_code)


def guarded_clients_of(world: World) -> list[Any]:
    return [Warden(world), *(GuardedUser(world, user, number) for user in USERS for number in range(2))]
