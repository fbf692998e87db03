"""What a follower has of its leader's logs, and what both answer to a consumer's Fetch because of that. Pure.

The rule: a follower shows a state that its leader was in once, high watermark and last stable offset together, and
nothing above it. Its log may end above its high watermark: what lies between is withheld, and what lies above its end
it does not know. Source: Kafka's Partition.readRecords, ReplicaManager.findPreferredReadReplica (KIP-392).
"""

import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from fencepost.protocol.batches import CorruptBatch, walk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchRequest, FetchResponse
from fencepost.protocol.primitives import ZERO_UUID

FOLLOWER = 2
CURRENT = (0, -1)  # epochs of requests that name all their partitions
Part = FetchResponse.Topic.Partition
Key = tuple[str | bytes, int]  # a topic's name, or its id; a partition
Wanted = dict[Key, FetchRequest.Topic.Partition]


class State(NamedTuple):
    """The state of a log at one moment."""

    high_watermark: int
    last_stable: int


class Copy:
    """A follower's log. It has all records below `end`, and shows those below the high watermark that it knows of."""

    def __init__(self, log_start: int, leader: State) -> None:
        self.log_start = log_start
        self._past = [State(log_start, log_start)]
        self.leader = self._copied = self.shown = leader

    @property
    def end(self) -> int:
        return self._copied.high_watermark

    def hear(self, state: State) -> None:
        """Take the leader's state from an answer of it. An answer that was overtaken by a newer one is ignored."""
        if state.high_watermark >= self.leader.high_watermark and state.last_stable >= self.leader.last_stable:
            self.leader = state

    def catch_up(self) -> None:
        """Fetch from the leader: all its records, and the high watermark as of the fetch before."""
        if self._copied != self._past[-1]:
            self._past.append(self._copied)
        self.shown, self._copied = self._copied, self.leader

    def lose(self, rng: random.Random) -> None:
        """Go back to an older copy, or to an empty disk."""
        self.shown = self._copied = rng.choice((self._past[0], rng.choice(self._past)))

    def has(self, offset: int) -> bool:
        """Return whether a fetch may begin at this offset."""
        return self.log_start <= offset <= self.end


class Session:
    """What one connection's fetches ask for, those of an incremental session too (KIP-227)."""

    def __init__(self) -> None:
        self._wanted: Wanted = {}

    def asked(self, request: FetchRequest) -> Wanted:
        """Add a request to the session. Returns all partitions that it asks for."""
        wanted = {} if request.session_epoch in CURRENT else dict(self._wanted)
        for gone in request.forgotten_topics_data:
            for number in gone.partitions:
                wanted.pop((_topic(gone), number), None)
        for topic in request.topics:
            for part in topic.partitions:
                wanted[_topic(topic), part.partition] = part
        self._wanted = wanted
        return wanted


def parts_of(response: FetchResponse) -> dict[Key, Part]:
    return {(_topic(topic), part.partition_index): part for topic in response.responses for part in topic.partitions}


def _topic(topic: Any) -> str | bytes:
    return topic.topic if topic.topic_id == ZERO_UUID else topic.topic_id


def part_of(response: FetchResponse, key: Key) -> Part:
    """Return the part of this partition in the response; add one if a session left it out, because there was no
    news.
    """
    found = parts_of(response).get(key)
    if found is None:
        found = Part(partition_index=key[1], records=[])
        by_id = isinstance(key[0], bytes)
        name, topic_id = ("", key[0]) if by_id else (key[0], ZERO_UUID)
        response.responses.append(FetchResponse.Topic(topic=name, topic_id=topic_id, partitions=[found]))
    return found


def hear(copies: dict[Key, Copy], response: FetchResponse) -> None:
    """Tell the copies the states of the leader's logs in its response."""
    for key, part in parts_of(response).items():
        if not part.error_code and part.high_watermark >= 0:
            state = State(part.high_watermark, part.last_stable_offset)
            copies.setdefault(key, Copy(part.log_start_offset, state)).hear(state)


def name_follower(response: FetchResponse, named: Mapping[Key, Copy]) -> None:
    """Let the leader's response name the follower for these partitions, instead of giving records."""
    for key, copy in named.items():
        part = part_of(response, key)
        if not part.error_code and part.diverging_epoch is None:
            part.records, part.aborted_transactions = [], None
            part.preferred_read_replica = FOLLOWER
            if part.high_watermark < 0:
                part.high_watermark, part.last_stable_offset = copy.leader
                part.log_start_offset = copy.log_start


def refuse(part: Part, code: ErrorCode) -> None:
    part.error_code = int(code)
    part.high_watermark = part.last_stable_offset = part.log_start_offset = -1
    part.records, part.aborted_transactions, part.diverging_epoch = [], None, None


def show(part: Part, copy: Copy, wanted: FetchRequest.Topic.Partition, *, committed: bool) -> str:
    """Change the leader's answer for a partition into the follower's. Returns a word for what that shows."""
    if part.error_code or part.diverging_epoch is not None:
        return "as its leader"
    if wanted.fetch_offset > copy.end:
        refuse(part, ErrorCode.OFFSET_OUT_OF_RANGE)
        # Then it tells where it takes the epoch to end.
        if wanted.last_fetched_epoch >= 0 and copy.end > copy.log_start:
            part.error_code = 0
            part.diverging_epoch = Part.EpochEndOffset(epoch=wanted.last_fetched_epoch, end_offset=copy.end)
            part.high_watermark, part.last_stable_offset = copy.shown
            part.log_start_offset = copy.log_start
        return "behind"
    part.high_watermark = min(part.high_watermark, copy.shown.high_watermark)
    part.last_stable_offset = min(part.last_stable_offset, copy.shown.last_stable)
    below = part.last_stable_offset if committed else part.high_watermark
    records = b"".join(part.records or ())
    part.records = _cut(records, below)
    if part.aborted_transactions is not None:
        part.aborted_transactions = [one for one in part.aborted_transactions if one.first_offset < below]
    return "withheld" if sum(map(len, part.records)) < len(records) else "gave" if records else "had nothing"


def _cut(records: bytes, below: int) -> list[memoryview]:
    """Return the complete batches below this offset."""
    size, view = 0, memoryview(records)
    with suppress(CorruptBatch):  # the last one may have been cut off
        for batch in walk(view):
            if batch.base_offset >= below:
                break
            size += batch.size
    return [view[:size]] if size else []
