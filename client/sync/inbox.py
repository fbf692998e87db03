"""The blocking inbox: `with sql.inbox(db, batch) as new:`, of a blocking consumer's batch.

The rule: begin and end of the block run in the loop's thread; what is in the block, in the caller's. After Ctrl-C the
block is rolled back, and the caller waits for that.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..consumer.batches import Batch
from ..sql.inbox import Inbox as AsyncInbox
from ..sql.keeping import keep_places as async_keep_places
from ..values import Record
from .blocking import inner_of
from .ending import end_transaction
from .loop_thread import LoopThread, loop_thread

if TYPE_CHECKING:
    from .taking_part import Database


class Inbox:
    """The block of one batch, whose changes are committed together with the group's place."""

    def __init__(self, inner: AsyncInbox, thread: LoopThread, db: "Database") -> None:
        self._db = db
        self._inner = inner
        self._thread = thread

    def __enter__(self) -> Sequence[Record]:
        self._db.before_block()
        try:
            return self._thread.run(self._inner.__aenter__)
        except BaseException as error:  # after a signal the block may have begun
            if self._inner.is_open:
                end_transaction(self._thread, self._inner.__aexit__, type(error), error, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        committed = False
        try:
            end_transaction(self._thread, self._inner.__aexit__, kind, error, at)
            committed = error is None
        except BaseException as raised:  # perhaps a signal, before the end had begun
            if self._inner.is_open:
                end_transaction(self._thread, self._inner.__aexit__, type(raised), raised, None)
            raise
        finally:
            self._db.after_block(committed)


def inbox(db: "Database", batch: Batch) -> Inbox:
    """`with sql.inbox(db, batch) as new:`: commit what the block writes together with the group's place (the offset
    after the batch).

    db: of `fencepost.sync.sql.connect`. Like fencepost.sql.inbox.
    """
    return Inbox(AsyncInbox(inner_of(db), batch), loop_thread(), db)


def keep_places(db: Any, consumer: Any) -> None:
    """Make a blocking consumer read on from its group's places (offsets) in the database. Like
    fencepost.sql.keep_places.
    """
    loop_thread().run(lambda: async_keep_places(inner_of(db), inner_of(consumer)))
