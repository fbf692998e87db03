"""One partition of a running Fetch: what the client asked for, and what was read."""

from collections.abc import Callable

from ...protocol.messages.fetch import FetchResponse
from ...storage.log.segment import Slice
from ...storage.producers.aborted import AbortedTransaction
from ..topics.partition import Partition
from .aborted_filter import Committed
from .fetch_sessions import Key, LastAnswer, Wanted

Answer = FetchResponse.Topic.Partition
Found = Slice | Committed | tuple[Slice, list[AbortedTransaction]] | list[AbortedTransaction]
"""What a worker brings: records, or them with what was aborted in them, or that alone."""


class PartitionRead:
    """One partition of a Fetch: what the client asked for, and what was read for the answer."""

    __slots__ = (
        "answer",
        "at_least_one",
        "cold",
        "key",
        "leaves_out_aborted",
        "max_bytes",
        "missing",
        "offset",
        "partition",
        "seen_bytes",
        "size_bytes",
        "wanted",
    )

    def __init__(self, key: Key, wanted: Wanted, partition: Partition | None) -> None:
        """key: the partition's key in the session. partition: None if it does not exist or may not be read."""
        self.key = key
        self.wanted = wanted
        self.partition = partition
        self.offset = wanted.fetch_offset  # where to read; a later one if all batches before it were aborted
        self.leaves_out_aborted = False  # the topic is committed-only, and the client does not skip aborted batches
        self.answer = Answer(partition_index=wanted.index, records=[])
        self.cold: Callable[[], Found] | None = None  # what a worker thread has to read for it
        self.max_bytes = 0
        self.at_least_one = False
        self.missing = False  # there is no such partition
        self.size_bytes = 0
        self.seen_bytes = 0  # how many bytes had been appended to the partition in all when it was read

    def last_answer(self) -> LastAnswer:
        """Return what a fetch session remembers of this answer."""
        answer = self.answer
        return LastAnswer(
            self.size_bytes > 0,
            answer.error_code,
            answer.high_watermark,
            answer.log_start_offset,
            answer.diverging_epoch is not None,
        )
