"""Django's connection as a blocking database.

The rule: functions that were given to `on_commit` are called in the thread of the block, after it, if it was committed.
Their errors are logged: raised, they would look like those of a transaction that was not.
"""

import logging
from typing import Any

from ..sql.django_adapter import DjangoAdapter
from ..sql.django_opening import check_thread, database_of
from ..sql.interfaces import Connections
from .taking_part import Database

log = logging.getLogger("fencepost.client")


class DjangoDatabase(Database):
    """A database that takes part over Django's connection. wrapper: `connections["default"]` of the calling thread."""

    def __init__(self, wrapper: Any, ask: Connections | None, create: bool | None) -> None:
        self._wrapper = wrapper
        self._adapter = DjangoAdapter(wrapper)
        super().__init__(lambda: database_of(self._adapter, wrapper, ask, create))

    def before_block(self) -> None:
        """Raise IllegalStateError in another thread, which has another connection."""
        check_thread(self._wrapper)

    def after_block(self, committed: bool) -> None:
        """Call the functions that the block has registered with `on_commit`, if it was committed. Their errors are
        logged.
        """
        waiting = self._adapter.on_commit[:]
        self._adapter.on_commit.clear()
        for call in waiting if committed else ():
            try:
                call()
            except Exception:
                log.exception("on_commit after a committed transaction: %r failed", call)
