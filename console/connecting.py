"""The console's one Admin: connected when it is first needed, and again after the broker could not be reached.

The rule: requests that arrive while it connects wait for the same connection, and all of them get its failure; the next
attempt is made after RETRY_MS at the earliest, so that not every browser causes one while the broker is down.
"""

import asyncio
from collections.abc import Callable

from ..client.admin.admin import Admin
from ..client.errors import KafkaError
from ..effects.clock import Clock

RETRY_MS = 1_000


class Connecting:
    """Holds the console's one Admin, which it connects at its first use. new_admin: makes an Admin that is not
    started. After a failed attempt the same error is raised for RETRY_MS, without another attempt.
    """

    def __init__(self, new_admin: Callable[[], Admin], clock: Clock) -> None:
        self._new_admin = new_admin
        self._clock = clock
        self._admin: Admin | None = None
        self._lock = asyncio.Lock()
        self._failed_ms = -RETRY_MS
        self._failure: KafkaError | None = None

    async def admin(self) -> Admin:
        """Return the connected Admin; connect it first if needed. Raises KafkaError."""
        if self._admin is not None:
            return self._admin
        async with self._lock:
            return await self._connected()

    async def _connected(self) -> Admin:
        """Return the Admin; connect it if no other caller has. Raises KafkaError; within RETRY_MS of a failed attempt
        it raises that attempt's error again. To be called with the lock.
        """
        if self._admin is not None:  # another caller has connected it while this one waited for the lock
            return self._admin
        if self._failure is not None and self._clock.monotonic_ms() - self._failed_ms < RETRY_MS:
            raise self._failure.with_traceback(None)
        admin = self._new_admin()
        try:
            await admin.start()
        except BaseException as error:
            await admin.close()
            if isinstance(error, KafkaError):
                self._failure, self._failed_ms = error, self._clock.monotonic_ms()
            raise
        self._admin, self._failure = admin, None
        return admin

    async def close(self) -> None:
        """Close the Admin, if it is connected."""
        if self._admin is not None:
            await self._admin.close()
            self._admin = None
