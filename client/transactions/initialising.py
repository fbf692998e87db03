"""InitProducerId until it succeeds: becoming the only producer of a transactional id.

The rule: whoever is told to wait, since a transaction of its id is being ended, asks whether one is held for a
database. That may last for long, and only the database's decision ends it; so it is not waited for here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ...protocol.errors import ErrorCode
from ..errors import ClientError, KafkaError, RequestTimedOutError, error_of
from ..net.retry import Deadline
from .answers import Verdict
from .deciding import PREFIX, Waiting
from .decisions import Decisions
from .machine import ClientTransaction
from .requests import TransactionRequests
from .table import State
from .tries import Tries

log = logging.getLogger("fencepost.client")


class Initialising:
    """Sends InitProducerId for one producer. explain: called before the error of a fenced producer is raised, to find
    the reason.
    """

    def __init__(
        self,
        machine: ClientTransaction,
        requests: TransactionRequests,
        decisions: Decisions,
        tries: Tries,
        explain: Callable[[], Awaitable[None]],
    ) -> None:
        self._machine = machine
        self._requests = requests
        self._decisions = decisions
        self._tries = tries
        self._explain = explain

    async def run(self, deadline: Deadline) -> None:
        """Send InitProducerId until it succeeds, or until it turns out that a transaction of the id is held: the state
        is PREPARED then. Raises its final error, or RequestTimedOutError.
        """
        machine = self._machine
        attempt = 0
        try:
            while True:
                error, code = await self._init_once(deadline)
                if error is None or (code == ErrorCode.CONCURRENT_TRANSACTIONS and await self._is_held()):
                    return
                if not await self._tries.pause(attempt, deadline, error, code, "InitProducerId"):
                    machine.not_initialised(error)
                    raise self._tries.late("InitProducerId", error)
                attempt += 1
        except asyncio.CancelledError as cancelled:
            if machine.state in (State.INITIALIZING, State.ABORTING):
                machine.not_initialised(RequestTimedOutError("InitProducerId was cancelled"))
            raise cancelled

    async def _init_once(self, deadline: Deadline) -> tuple[KafkaError | None, int]:
        """Send InitProducerId once. Returns (None, 0), or a retriable error and its code. Raises other errors."""
        try:
            code, identity = await self._requests.init(deadline.left_ms())
        except KafkaError as error:
            return error, 0
        verdict = self._machine.initialised(code, identity)
        if verdict is Verdict.DONE:
            return None, 0
        if verdict is not Verdict.AGAIN:
            await self._explain()
            raise self._machine.failure()
        self._requests.stale(code, self._requests.target)
        return error_of(code), code

    async def _is_held(self) -> bool:
        """Return whether a transaction of this id is held for a database, and note it. False if it cannot be found
        out now.
        """
        name = self._machine.transactional_id
        try:
            if self._machine.state is not State.INITIALIZING or not await self._decisions.can_hold(name):
                return False
            found = await self._decisions.find_held(name)
        except KafkaError:
            return False
        if found:
            self._machine.held(held_error(found[0]))
            log.warning("%s", self._machine.error)
        return bool(found)


def held_error(waiting: Waiting) -> ClientError:
    """Return the error for calls that cannot go on before this prepared transaction is decided."""
    database = waiting.key.removeprefix(PREFIX).removesuffix(f":{waiting.transactional_id}")
    return ClientError(
        f"a transaction of {waiting.transactional_id!r} is prepared and waits for number {waiting.number} of database "
        f"{database}, for {waiting.waits_for_ms // 1000} s so far",
        code=ErrorCode.CONCURRENT_TRANSACTIONS,
        hint="begin with transaction(db=…) of that database, or run fencepost txn resolve --db URL",
    )
