"""The job of a worker thread that reads one partition and removes aborted transactions (aborted_filter.py).

It is only used if the read contains an aborted batch, or must read from disk; everything else is sent without a copy.
If no batch remains, the fetch reads the batches after them, in another such job, because an aborted transaction may
have any length.
"""

from collections.abc import Sequence

from ...effects.disk import Buffer
from ...storage.log.file_parts import FilePart
from ...storage.log.reads import AbortedLookup, ColdRead
from ...storage.log.segment import Slice
from ...storage.producers.aborted import AbortedTransaction
from .aborted_filter import Committed, leave_out_aborted

READ_ON_BYTES = 1 << 20  # of an aborted transaction, in one job, however little the reader asks for


class CommittedRead:
    """A read of one partition that leaves out aborted batches. run() raises Gone and KafkaError as other reads do."""

    def __init__(
        self,
        found: Slice | ColdRead,
        aborted: list[AbortedTransaction] | AbortedLookup,
        max_bytes: int,
        *,
        at_least_one: bool,
    ) -> None:
        """aborted: the aborted transactions in what was found. A read from disk looks them up itself."""
        self._found = found
        self._aborted = aborted
        self._max_bytes = max_bytes
        self._at_least_one = at_least_one

    def run(self) -> Committed:
        """Read from disk what is not in memory yet, and return the batches that were not aborted."""
        found, aborted = self._found, self._aborted
        if isinstance(found, ColdRead):
            found, aborted = found.run_committed()
        elif isinstance(aborted, AbortedLookup):
            aborted = aborted.run()
        data = memoryview(joined(found.buffers))
        return leave_out_aborted(data, aborted, self._max_bytes, at_least_one=self._at_least_one)


def joined(buffers: Sequence[Buffer | FilePart]) -> Buffer:
    """Return these buffers as one piece of bytes; parts of a file are read from it."""
    pieces = [piece.read() if isinstance(piece, FilePart) else piece for piece in buffers]
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
