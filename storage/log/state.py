"""The state of a partition's log that jobs may read, while they run in workers or wait for their turn.

PartitionLog is a subclass, with the methods that change the state. A job reads the log's offsets here, and may put the
log offline. It copies the list of segments when it is made, because the list changes while the job runs.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...effects.disk import Disk
from ..producers.aborted import TransactionSpans
from ..producers.producers import ProducerStates
from .open_files import OpenFiles
from .segment import SegmentState
from .settings import LogSettings


class Walked(NamedTuple):
    """The segments that were read so far to derive aborted transactions. spans: the transactions still open after
    them.
    """

    states: tuple[SegmentState, ...]
    spans: TransactionSpans


class LogState:
    """Offsets: start_offset ≤ flushed_offset ≤ high_watermark ≤ end_offset; each is that of the next record.

    Batches exist from start_offset on: below flushed_offset in segments, from there in the tail. Readers see records
    from released_start up to high_watermark.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        log_id: int,
        topic: str,
        partition: int,
        settings: LogSettings,
        open_files: OpenFiles,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.log_id = log_id
        self.topic = topic
        self.partition = partition
        self.settings = settings
        self.open_files = open_files
        self.producers = ProducerStates()
        self.offline: str | None = None
        self.deleted = False
        self.start_offset = 0
        self.released_start = 0  # start_offset, once the unit that moved it is durable
        self.end_offset = 0
        self.high_watermark = 0
        self.flushed_offset = 0
        self.cleaned_offset = 0  # compaction has been through everything below
        self.tail_bytes = 0
        self.segments: list[SegmentState] = []  # ascending; a changed state is another object
        self.walked: Walked | None = None  # what was read when aborted transactions were last derived
        self.made_directory = False  # whether the log's directory was made

    def holds(self, states: Sequence[SegmentState]) -> bool:
        """Return whether all these segments are still part of the log; they may have grown. May be called by
        workers.
        """
        held = {(state.base_offset, state.generation) for state in tuple(self.segments)}
        return not self.deleted and all((state.base_offset, state.generation) in held for state in states)
