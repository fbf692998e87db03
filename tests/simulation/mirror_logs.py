"""Reads what `mirror_rules.py` judges, by raw requests: logs, the map of offsets, positions, groups."""

import asyncio
from typing import Any

from fencepost.client.mirror.names import MAP_TOPIC, group_id
from fencepost.client.mirror.offset_map import decode_entry, decode_key
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.offsets import OffsetFetchRequest
from fencepost.protocol.records import Marker, read_marker, records
from produce_requests import fetch, fetched
from simulation.history import Op, Place
from simulation.lines import Caller, Unanswered
from simulation.mirror_rules import TARGET, Copy, GroupAt, Log, MapOf, PositionOf, Stands
from simulation.mirrored_world import MirroredWorld
from simulation.plain_clients import batches_in

FETCH_VERSION, OFFSET_FETCH_VERSION = 12, 7
MAP: Place = (MAP_TOPIC, 0)


async def log_of(world: MirroredWorld, side: str, place: Place) -> Op | None:
    """Note in the history what a partition has now. Returns the operation; None, after it was failed, if records were
    deleted meanwhile.
    """
    op = world.history.invoke("look", Log(side, place))
    found = await _read(Caller(world.sides[side], "look"), place)
    if found is None:
        op.fail()
        return None
    op.ok(found)
    return op


async def _read(caller: Caller, place: Place) -> Stands | None:
    """Read a whole partition: where it begins and ends, and its committed records. Returns None if records were deleted
    meanwhile.
    """
    batches: list[Any] = []
    offset, start = 0, 0
    while True:
        request = fetch(place[0], offset, partition=place[1])
        request.raw = True
        try:
            part = fetched(await caller.ask(request, FETCH_VERSION))
        except (Unanswered, TimeoutError):
            continue
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if batches:
                return None
            offset = part.log_start_offset if part.log_start_offset >= 0 else offset + 1
            continue
        if part.error_code:
            await asyncio.sleep(0.05)
            continue
        found = batches_in(part)
        if not found:
            start = part.log_start_offset
            break
        batches += found
        offset = batches[-1].last_offset + 1
    caller.close()
    return Stands(start, offset, tuple(copy for copy in _committed(batches) if copy.offset >= start))


def _committed(batches: list[Any]) -> list[Copy]:
    """Return the records, by offset, that a marker commits, or that are in no transaction."""
    found: list[Copy] = []
    open_: dict[int, list[Copy]] = {}
    for batch in batches:
        if batch.is_control:
            marker = read_marker(batch)
            copies = open_.pop(batch.producer_id, [])
            if marker is not None and marker[0] is Marker.COMMIT:
                found += [copy._replace(txn=f"{batch.producer_id} to {batch.base_offset}") for copy in copies]
            continue
        copies = [
            Copy(one.offset, _bytes(one.key), _bytes(one.value), _headers(one.headers), one.timestamp)
            for one in records(batch)
        ]
        if batch.is_transactional:
            open_.setdefault(batch.producer_id, []).extend(copies)
        else:
            found += copies
    return sorted(found)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def _headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, _bytes(value)) for name, value in headers)


async def map_of(world: MirroredWorld, mirror: str, places: list[Place]) -> None:
    """Note in the history the newest entries of the map of offsets for these partitions."""
    stands = await _read(Caller(world.target, "look"), MAP)
    newest: dict[bytes, bytes | None] = {}
    for copy in () if stands is None else stands.copies:
        newest[copy.key or b""] = copy.value
    entries: dict[Place, list[tuple[int, int, tuple[tuple[int, ...], ...]]]] = {place: [] for place in places}
    for raw, value in newest.items():
        if value is None or b'"cutover"' in raw:
            continue
        key = decode_key(raw)
        if key.mirror == mirror:
            entry = decode_entry(key.first, value)
            entries[key.topic, key.partition].append((key.first, entry.end, tuple(map(tuple, entry.runs))))
    for place in places:
        world.history.invoke("look", MapOf(place)).ok(tuple(sorted(entries[place])))


async def positions_of(world: MirroredWorld, mirror: str, places: list[Place]) -> dict[Place, int]:
    """Return the mirror's committed positions, -1 for none. Waits until no transaction is pending."""
    return {place: await offset_of(world, TARGET, group_id(mirror), place) for place in places}


async def offset_of(world: MirroredWorld, side: str, group: str, place: Place) -> int:
    """Return the offset that a group has committed, -1 for none. Waits until no transaction is pending."""
    caller = Caller(world.sides[side], "look")
    request = OffsetFetchRequest(
        group_id=group,
        topics=[OffsetFetchRequest.Topic(name=place[0], partition_indexes=[place[1]])],
        require_stable=True,
    )
    while True:
        try:
            answer = await caller.ask(request, OFFSET_FETCH_VERSION)
        except (Unanswered, TimeoutError):
            continue
        part = answer.topics[0].partitions[0]
        if not (part.error_code or answer.error_code):
            caller.close()
            return int(part.committed_offset)
        await asyncio.sleep(0.05)


async def write_positions_down(world: MirroredWorld, mirror: str, places: list[Place]) -> None:
    for place, offset in (await positions_of(world, mirror, places)).items():
        world.history.invoke("look", PositionOf(place)).ok(offset)


async def write_groups_down(world: MirroredWorld, groups: list[str], places: list[Place]) -> None:
    for side in world.sides:
        for group in groups:
            for place in places:
                op = world.history.invoke("look", GroupAt(side, group, place))
                op.ok(await offset_of(world, side, group, place))
