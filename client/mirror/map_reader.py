"""Reads the map of offsets on the target, and the record of a cutover that lies beside it."""

from collections.abc import Mapping

from ...protocol.records import records
from ..admin.admin import Admin
from ..admin.offsets import EARLIEST, LATEST
from ..settings import LEAST_DECOMPRESSED_LIMIT
from ..values import TopicPartition
from .committed import committed_batches
from .cutover.record import is_cutover_key
from .group_offsets import PartitionMap
from .names import MAP_TOPIC
from .offset_map import Run, decode_entry, decode_key

_MAP = TopicPartition(MAP_TOPIC, 0)


async def read_newest(target: Admin) -> dict[bytes, bytes]:
    """Return the newest value of each key in the map's topic, as of now; nothing if there is no such topic."""
    if MAP_TOPIC not in await target.describe_topics():
        return {}
    start = (await target.ends([_MAP], EARLIEST))[_MAP]
    end = (await target.ends([_MAP], LATEST))[_MAP]
    found: dict[bytes, bytes] = {}
    async for batch in committed_batches(target, _MAP, start, end):
        for record in records(batch, limit=LEAST_DECOMPRESSED_LIMIT):
            key = bytes(record.key or b"")
            found.pop(key, None)
            if record.value is not None:
                found[key] = bytes(record.value)
    return found


def maps_in(
    newest: Mapping[bytes, bytes], mirror: str, topic_ids: Mapping[str, bytes]
) -> dict[TopicPartition, PartitionMap]:
    """Return the map of each partition that has entries of the mirror. Its `first` is that of its first entry,
    below which others may be lost, or never were. topic_ids: of the topics on the source now.

    Raises MapDamaged if entries contradict each other, IllegalStateError if one does not parse.
    """
    runs: dict[TopicPartition, list[Run]] = {}
    firsts: dict[TopicPartition, int] = {}
    for raw, value in newest.items():
        if is_cutover_key(raw):
            continue
        key = decode_key(raw)
        if key.mirror == mirror and topic_ids.get(key.topic) == key.topic_id:
            entry = decode_entry(key.first, value)
            partition = TopicPartition(key.topic, key.partition)
            runs.setdefault(partition, []).extend(entry.runs)
            firsts[partition] = min(key.first, firsts.get(partition, key.first))
    return {partition: PartitionMap(found, first=firsts[partition]) for partition, found in runs.items()}
