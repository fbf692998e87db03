"""The state of a cluster at one moment, and its rows as pages and the REST API show them. Pure.

The rule: fields have the names of Confluent's REST API if that has them; ages are as of the view's moment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, NamedTuple

from ...client.admin.values import (
    Blocker,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    HeldOffsets,
    LowLogDir,
    PreparedTransaction,
    SharePartitionOffsets,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
    decision_text,
)
from ...client.values import TopicPartition

FEATURE = "fencepost.version"
SHOWN_PARTITIONS = 100  # of one transaction
SHOWN_IN_LIST = 10  # partitions and groups of each row that all browsers get, at every change
NAME_CHARS = 200_000  # in the transactional ids of one list


class Offsets(NamedTuple):
    """Three offsets of a partition: the start of its log, its last stable offset, its high watermark."""

    start: int
    stable: int
    end: int


class Group(NamedTuple):
    """A group. description: None if it was deleted before it was described, or may not be seen. committed: the
    committed offset of each partition.

    share: of a share group its offsets in each partition, since it has no committed ones; None for other groups.
    """

    listing: GroupListing
    description: GroupDescription | None
    committed: Mapping[TopicPartition, int]
    share: Mapping[TopicPartition, SharePartitionOffsets] | None = None


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at one moment. at_ms: when, by the wall clock. listed: all transactional ids. open: those with an
    open transaction. prepared: those that wait for a decision. blockers: the partitions that transactions block. held:
    groups whose offsets a transaction has pending. missing: one line for each thing that could not be read.
    """

    at_ms: int
    cluster: ClusterDescription
    topics: Mapping[str, TopicDescription]
    offsets: Mapping[TopicPartition, Offsets]
    listed: Mapping[str, TransactionListing] = field(default_factory=dict[str, TransactionListing])
    open: Mapping[str, TransactionDescription] = field(default_factory=dict[str, TransactionDescription])
    prepared: Mapping[str, PreparedTransaction] = field(default_factory=dict[str, PreparedTransaction])
    blockers: tuple[Blocker, ...] = ()
    groups: Mapping[str, Group] = field(default_factory=dict[str, Group])
    missing: tuple[str, ...] = ()
    release: str | None = None  # of fencepost; None: of another broker, or not known
    held: tuple[HeldOffsets, ...] = ()
    low_disks: tuple[LowLogDir, ...] = ()
    # Made from the rest when they are first asked for: with many groups and blocked partitions they take long.
    blocks: dict[int, dict[str, int]] | None = field(default=None, init=False, compare=False)
    readers: dict[TopicPartition, list[tuple[str, int]]] | None = field(default=None, init=False, compare=False)

    @property
    def cluster_id(self) -> str:
        """Return the cluster's id, "unknown" if the broker gives none."""
        return self.cluster.cluster_id or "unknown"


# ---- rows ----------------------------------------------------------------------------------------------------------


def partition_name(partition: TopicPartition) -> dict[str, Any]:
    """Return topic and partition as JSON, with the names of Confluent's API."""
    return {"topic_name": partition.topic, "partition_id": partition.partition}


def offsets_row(partition: TopicPartition, offsets: Offsets | None) -> dict[str, Any]:
    """Return the row of a partition's offsets. offsets: None if it has no leader, then they are null."""
    start, stable, end = offsets or (None, None, None)
    return {
        **partition_name(partition),
        "log_start_offset": start,
        "last_stable_offset": stable,
        "high_watermark": end,
    }


def prepared_row(prepared: PreparedTransaction | None) -> dict[str, Any] | None:
    """Return the decision for which a prepared transaction waits, as JSON; None if it waits for none. sink, batch:
    key and number in the ledger of sinks. held: the decision is made outside of the broker, for example in a
    database.
    """
    if prepared is None:
        return None
    return {"sink": prepared.sink, "batch": prepared.number, "query": prepared.owner, "held": prepared.held}


def transaction_row(
    found: TransactionDescription,
    view: View,
    blocks: Mapping[int, Mapping[str, int]],
    shown: int = SHOWN_PARTITIONS,
) -> dict[str, Any]:
    """Return the row of one transaction. blocks: from blocks_by_producer(). shown: how many of its partitions are
    listed at most.
    """
    is_open = found.is_open
    age = max(0, view.at_ms - found.started_ms) if found.started_ms is not None and is_open else None
    return {
        "kind": "KafkaTransaction",
        "transactional_id": found.transactional_id,
        "transaction_id": found.transaction_id,
        "state": found.state,
        "is_open": is_open,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_id": found.coordinator,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms if is_open else None,
        "age_ms": age,
        "timeout_share": share(age, found.timeout_ms),
        "partitions": [partition_name(each) for each in found.partitions[:shown]],
        "partitions_count": len(found.partitions),
        "prepared": prepared_row(view.prepared.get(found.transactional_id)),
        "blocks": blocks.get(found.producer_id) if is_open else None,
    }


def listed_row(found: TransactionListing) -> dict[str, Any]:
    """Return the row of a transactional id without an open transaction; fields that the list lacks are null."""
    return {
        "kind": "KafkaTransaction",
        "transactional_id": found.transactional_id,
        "transaction_id": found.transaction_id,
        "state": found.state,
        "is_open": False,
        "producer_id": found.producer_id,
        "producer_epoch": None,
        "coordinator_id": found.coordinator,
        "timeout_ms": None,
        "started_ms": None,
        "age_ms": None,
        "timeout_share": None,
        "partitions": [],
        "partitions_count": 0,
        "prepared": None,
        "blocks": None,
    }


def share(age_ms: int | None, timeout_ms: int | None) -> float | None:
    """Return the fraction of its timeout that a transaction has used: age / timeout, 1.0 at the timeout. None if
    either is unknown.
    """
    if age_ms is None or timeout_ms is None or timeout_ms <= 0:
        return None
    return round(age_ms / timeout_ms, 3)


def blocks_by_producer(view: View) -> dict[int, dict[str, int]]:
    """Return by producer id how many partitions, records and groups its open transaction blocks. Computed once for
    each view.
    """
    if view.blocks is None:
        found: dict[int, dict[str, int]] = {}
        waiting: dict[int, set[str]] = {}
        for each in view.blockers:
            producer = each.open.producer.producer_id
            counts = found.setdefault(producer, {"partitions": 0, "records": 0, "groups": 0})
            counts["partitions"] += 1
            counts["records"] += each.high_watermark - each.last_stable_offset
            readers = _readers_of(view).get(each.open.topic_partition, ())
            waits = {name for name, offset in readers if offset >= each.last_stable_offset}
            waiting.setdefault(producer, set()).update(waits)
        for producer, groups in waiting.items():
            found[producer]["groups"] = len(groups)
        object.__setattr__(view, "blocks", found)
        return found
    return view.blocks


def _readers_of(view: View) -> Mapping[TopicPartition, list[tuple[str, int]]]:
    """Return by partition the (group, committed offset) of each group with an offset there. Computed once for each
    view.
    """
    if view.readers is None:
        found: dict[TopicPartition, list[tuple[str, int]]] = {}
        for group in view.groups.values():
            for at, offset in group.committed.items():
                found.setdefault(at, []).append((group.listing.group_id, offset))
        object.__setattr__(view, "readers", found)
        return found
    return view.readers


def waiting_groups(blocker: Blocker, view: View) -> list[dict[str, Any]]:
    """Return the groups that have a committed offset in the blocked partition. would_wait: the group has read up to
    the last stable offset, so with read_committed it gets nothing now.
    """
    return [
        {
            "consumer_group_id": name,
            "current_offset": offset,
            "lag_to_stable": max(0, blocker.last_stable_offset - offset),
            "would_wait": offset >= blocker.last_stable_offset,
        }
        for name, offset in _readers_of(view).get(blocker.open.topic_partition, ())
    ]


def blocker_row(blocker: Blocker, view: View, shown: int = SHOWN_PARTITIONS) -> dict[str, Any]:
    """Return the row of one blocked partition, with the transaction that holds its last stable offset back.

    shown: how many partitions and groups are listed at most. Groups that would wait come first.
    """
    at, producer, owner = blocker.open.topic_partition, blocker.open.producer, blocker.description
    age = None if blocker.since_ms is None else max(0, view.at_ms - blocker.since_ms)
    name = owner.transactional_id if owner else None
    others = [each for each in owner.partitions if each != at] if owner else []
    groups = sorted(waiting_groups(blocker, view), key=lambda each: (not each["would_wait"], each["consumer_group_id"]))
    row = {
        "kind": "KafkaBlockedPartition",
        **partition_name(at),
        "transactional_id": name,
        "state": owner.state if owner else None,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_id": owner.coordinator if owner else None,
        "started_ms": owner.started_ms if owner else None,
        "age_ms": age,
        "timeout_ms": owner.timeout_ms if owner else None,
        "timeout_share": share(age, owner.timeout_ms if owner else None),
        "start_offset": blocker.open.start_offset,
        "last_stable_offset": blocker.last_stable_offset,
        "high_watermark": blocker.high_watermark,
        "waiting": blocker.high_watermark - blocker.last_stable_offset,
        "hangs": blocker.hangs,
        "also_in": [partition_name(each) for each in others[:shown]],
        "also_in_count": len(others),
        "groups": groups[:shown],
        "groups_count": len(groups),
        "prepared": prepared_row(view.prepared.get(name)) if name is not None else None,
    }
    return {**row, "sentence": _sentence(row)}


def _sentence(row: Mapping[str, Any]) -> str:
    """Return a sentence that says which transaction blocks this partition. row: made by blocker_row."""
    at = f"{row['topic_name']}-{row['partition_id']}"
    held = f"{at} is held at offset {row['last_stable_offset']}, {row['waiting']} before its end,"
    producer = f"producer {row['producer_id']} epoch {row['producer_epoch']}"
    if row["hangs"]:
        return f"{held} by a transaction of {producer} that no coordinator will end"
    if row["prepared"]:
        waits = decision_text(*(row["prepared"][field] for field in ("sink", "batch", "held")))
        return f"{held} by transaction {row['transactional_id']}, which waits for {waits}"
    return f"{held} by transaction {row['transactional_id']} of {producer}, {row['state']}"


def blocker_rows(view: View, most: int) -> list[dict[str, Any]]:
    """Return the rows of up to `most` blocked partitions, the longest blocked first, before them those of unknown
    start. Fewer if transactional ids are very long.
    """
    oldest = nsmallest(most, view.blockers, key=lambda each: (each.since_ms or 0, each.open.topic_partition))
    names = (each.description.transactional_id if each.description else "" for each in oldest)
    return [blocker_row(each, view, SHOWN_IN_LIST) for each in oldest[: _count_fitting(names)]]


def open_rows(view: View, most: int) -> list[dict[str, Any]]:
    """Return the rows of up to `most` open transactions, the oldest first. Fewer if their ids are very long."""
    blocks = blocks_by_producer(view)
    oldest = nsmallest(
        most, view.open.values(), key=lambda each: (each.started_ms or view.at_ms, each.transactional_id)
    )
    names = (each.transactional_id for each in oldest)
    return [transaction_row(each, view, blocks, SHOWN_IN_LIST) for each in oldest[: _count_fitting(names)]]


def _count_fitting(names: Iterable[str]) -> int:
    """Return how many of these names have at most NAME_CHARS characters together, but at least 1: an id may have
    32,767 characters.
    """
    chars = count = 0
    for each in names:
        chars += len(each)
        if chars > NAME_CHARS and count:
            break
        count += 1
    return count


def topic_offsets(topic: TopicDescription, view: View) -> dict[str, int] | None:
    """Return sums over the topic's partitions: records retained, records that open transactions block, blocked
    partitions. None if no offsets are known yet.
    """
    known = [view.offsets[each] for each in topic.topic_partitions if each in view.offsets]
    if not known:
        return None
    return {
        "retained": sum(each.end - each.start for each in known),
        "held": sum(each.end - each.stable for each in known),
        "blocked_partitions": sum(each.stable < each.end for each in known),
    }


def group_lag(group: Group, view: View) -> dict[str, int | None]:
    """Return the group's lags in records, summed over the partitions that it has committed offsets of.

    A share group's lag is what it has not finished yet, up to the high watermark. For it, a partition counts as blocked
    if its window is full because of a transaction, so that the group gets no new records there.
    """
    if group.share is not None:
        stands = group.share.values()
        return {
            "to_stable": None,
            "to_high_watermark": sum(each.lag or 0 for each in stands),
            "partitions": len(stands),
            "blocked_partitions": sum(bool(each.held_by) for each in stands),
        }
    known = [(offset, view.offsets[at]) for at, offset in group.committed.items() if at in view.offsets]
    return {
        "to_stable": sum(max(0, each.stable - offset) for offset, each in known),
        "to_high_watermark": sum(max(0, each.end - offset) for offset, each in known),
        "partitions": len(known),
        "blocked_partitions": sum(each.stable < each.end for _, each in known),
    }


def group_row(group: Group, view: View) -> dict[str, Any]:
    """Return the fields of a group that fencepost adds to those of Confluent's REST API."""
    return {
        "consumer_group_id": group.listing.group_id,
        "state": group.description.state if group.description else group.listing.state,
        "members": len(group.description.members) if group.description else 0,
        "offsets_held": any(each.group_id == group.listing.group_id for each in view.held),
        "lag": group_lag(group, view),
    }


def counts_row(view: View) -> dict[str, Any]:
    """Return the numbers of the overview page."""
    offsets = view.offsets.values()
    states: dict[str, int] = {}
    for each in view.listed.values():
        states[each.state] = states.get(each.state, 0) + 1
    return {
        "topics": sum(not each.is_internal for each in view.topics.values()),
        "partitions": sum(len(each.partitions) for each in view.topics.values() if not each.is_internal),
        "groups": len(view.groups),
        "transactions": len(view.listed),
        "open_transactions": len(view.open),
        "blocked_partitions": sum(each.stable < each.end for each in offsets),
        "held_groups": len({each.group_id for each in view.held}),
        "retained_records": sum(each.end - each.start for each in offsets),
        "held_records": sum(each.end - each.stable for each in offsets),
        "oldest_open_ms": oldest_ms(view.open.values(), view.at_ms),
        "transaction_states": dict(sorted(states.items())),
    }


def oldest_ms(found: Iterable[TransactionDescription], at_ms: int) -> int | None:
    """Return the age of the oldest of these open transactions in milliseconds; None if there are none. at_ms: now."""
    return max((max(0, at_ms - each.started_ms) for each in found if each.started_ms is not None), default=None)


def cluster_row(view: View) -> dict[str, Any]:
    """Return the cluster's id, controller, brokers and release as JSON."""
    cluster = view.cluster
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller,
        "brokers": [{"broker_id": each.node_id, "host": each.host, "port": each.port} for each in cluster.nodes],
        "fencepost": FEATURE in cluster.features,
        "fencepost_version": view.release,
    }
