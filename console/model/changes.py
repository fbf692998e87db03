"""What changed between two views of a cluster, as events for browsers. Pure.

The rule: an event has at most MAX_ITEMS items; `more` is true if there were more, and the page must then load the list
again. Ages are not changes: pages count them up themselves.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from .alarms import ageless, alarm_rows
from .view import (
    SHOWN_IN_LIST,
    View,
    blocker_rows,
    blocks_by_producer,
    counts_row,
    group_row,
    listed_row,
    offsets_row,
    transaction_row,
    waiting_groups,
)

MAX_ITEMS = 200
MAX_BLOCKERS = 100
Event = tuple[str, dict[str, Any]]


def changes(before: View, after: View) -> Iterator[Event]:
    """Yield (event name, data) for each difference between two successive views, in the form in which browsers get
    it.
    """
    counts = counts_row(after)
    if _ageless(counts) != _ageless(counts_row(before)):
        yield "counts", counts
    yield from _transactions(before, after)
    yield from _partitions(before, after)
    if _blocked_states(before) != _blocked_states(after) or _waits_changed(before, after):
        rows = blocker_rows(after, MAX_BLOCKERS)
        yield "blockers", {"rows": rows, "complete": len(rows) == len(after.blockers)}
    yield from _groups(before, after)
    alarms = alarm_rows(after)
    if ageless(alarms) != ageless(alarm_rows(before)):
        yield "alarms", {"rows": alarms}
    if before.missing != after.missing:
        yield "missing", {"rows": list(after.missing)}


def _ageless(counts: dict[str, Any]) -> dict[str, Any]:
    """Return the counts without the one age among them, which grows with every view."""
    return {name: value for name, value in counts.items() if name != "oldest_open_ms"}


def _blocked_states(view: View) -> set[Any]:
    """Return values that identify each blocked partition and its state, for comparing two views."""
    return {
        (
            each.open.topic_partition,
            each.open.producer[:2],
            each.last_stable_offset,
            each.high_watermark,
            each.hangs,
            each.description and (each.description.state, each.description.transactional_id in view.prepared),
        )
        for each in view.blockers
    }


def _waits_changed(before: View, after: View) -> bool:
    """Return whether other groups than before wait for a blocked partition. Returns False at once if the groups were
    not read again in between.
    """
    return before.groups is not after.groups and _waits(before) != _waits(after)


def _waits(view: View) -> list[set[tuple[str, bool]]]:
    """Return for each blocked partition the groups that read it: (group, whether it has read up to the last stable
    offset).
    """
    return [
        {(group["consumer_group_id"], group["would_wait"]) for group in waiting_groups(each, view)}
        for each in view.blockers[:MAX_BLOCKERS]
    ]


def _take_first(items: Iterable[Any]) -> tuple[list[Any], bool]:
    """Return the first MAX_ITEMS items, and whether there are more."""
    found = list(islice(items, MAX_ITEMS + 1))
    return found[:MAX_ITEMS], len(found) > MAX_ITEMS


def _transactions(before: View, after: View) -> Iterator[Event]:
    """Yield one event with the transactions that began, changed or ended, if any. more: not all fit in the event."""
    begun = (each for name, each in after.open.items() if before.open.get(name) != each)
    ended, ended_more = _take_first(name for name in before.open if name not in after.open)
    changed, more = _take_first(begun)
    if not changed and not ended:
        return
    blocks = blocks_by_producer(after)
    rows = [transaction_row(each, after, blocks, SHOWN_IN_LIST) for each in changed]
    rows += [listed_row(after.listed[name]) for name in ended if name in after.listed]
    removed = [name for name in ended if name not in after.listed]
    yield "transactions", {"changed": rows, "removed": removed, "more": more or ended_more}


def _partitions(before: View, after: View) -> Iterator[Event]:
    """Yield one event with the partitions whose offsets changed, if any. more: not all fit, or a partition was
    deleted.
    """
    moved = (at for at, offsets in after.offsets.items() if before.offsets.get(at) != offsets)
    changed, more = _take_first(moved)
    gone = any(at not in after.offsets for at in before.offsets)
    if changed or gone:
        rows = [offsets_row(at, after.offsets[at]) for at in changed]
        yield "partitions", {"changed": rows, "more": more or gone}


def _groups(before: View, after: View) -> Iterator[Event]:
    """Yield one event with the groups that changed or were deleted, if any. more: not all fit in the event."""
    rows = {name: group_row(each, after) for name, each in after.groups.items()}
    old = {name: group_row(each, before) for name, each in before.groups.items()}
    changed, more = _take_first(row for name, row in rows.items() if old.get(name) != row)
    removed, more_removed = _take_first(name for name in old if name not in rows)
    if changed or removed:
        yield "groups", {"changed": changed, "removed": removed, "more": more or more_removed}
