"""Whether the topics on both sides are still those that a position is of. Their ids say so: a topic that is deleted and
made again has another one.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Literal

from ..admin.admin import Admin
from ..errors import UnknownTopicError
from ..net.environment import Environment
from ..net.retry import Deadline
from ..values import TopicPartition
from .findings import ANEW, StoppedError
from .positions import Position
from .source import SETTLING_MS

STEP_MS = 200


class TopicIds:
    """Asks both clusters for the ids of topics. They are zeros where a cluster has none (before Kafka 2.8)."""

    def __init__(self, source: Admin, target: Admin, environment: Environment) -> None:
        self._source = source
        self._target = target
        self._clock = environment.clock

    async def on_source(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the ids of these topics on the source. Raises StoppedError for one that stays away."""
        return await self._ids(self._source, "source", names)

    async def on_target(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the ids of these topics on the target. Raises StoppedError for one that stays away."""
        return await self._ids(self._target, "target", names)

    async def _ids(self, admin: Admin, side: Literal["source", "target"], names: Iterable[str]) -> dict[str, bytes]:
        """Ask for all topics in one request. If one is unknown, ask for each, for up to SETTLING_MS: a broker that has
        just started may not know its topics yet.
        """
        wanted, found = sorted(names), dict[str, bytes]()
        if not wanted:
            return found
        with suppress(UnknownTopicError):
            return {name: bytes(topic.topic_id) for name, topic in (await admin.describe_topics(wanted)).items()}
        for name in wanted:
            deadline = Deadline(self._clock, SETTLING_MS)
            while name not in found:
                try:
                    found[name] = bytes((await admin.describe_topics([name]))[name].topic_id)
                except UnknownTopicError:
                    if deadline.left_ms() <= 0:
                        raise deleted(name, side) from None
                    await asyncio.sleep(STEP_MS / 1000)
        return found

    async def check(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Raise StoppedError if a topic was deleted, on either side, since its position was committed. If not, all
        records that were read so far are of the present topics.
        """
        names = {tp.topic for tp in positions}
        here, there = await asyncio.gather(self.on_source(names), self.on_target(names))
        for tp, position in positions.items():
            if here[tp.topic] != position.topic_id:
                raise StoppedError(
                    tp.topic,
                    "it was deleted on the source and made again, or a mirror of this name copies from another source",
                    hint=ANEW,
                )
            if not position.is_of_copy(there[tp.topic]):
                raise deleted(tp.topic, "target")


def deleted(topic: str, side: Literal["source", "target"]) -> StoppedError:
    """Return the error for a topic that was deleted on this side."""
    if side == "source":
        return StoppedError(topic, "it was deleted on the source")
    return StoppedError(
        topic, "it was deleted on the target", hint="start the mirror again: it makes the topic, and copies it anew"
    )
