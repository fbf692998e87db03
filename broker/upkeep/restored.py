"""The first start on a directory restored from a backup: fences clients that know a state newer than the backup.

The rule: clients of the old broker went on after the moment of the backup. The ids, epochs and generations that they
hold must not be equal to those that this broker gives to other clients from now on:

    producer ids       the next one is far above all that the old broker may have given out
    transactional ids  each gets a new producer id, and open transactions are aborted (transactions/states/renewal.py)
    named producers    each gets a new epoch: its client opens it again, and reads the restored sequences
    groups             have no members: a client with an old generation joins again, and reads the restored offsets
    leader epochs      are far above all that owners of a store may have begun with this data since

All of it is durable before the first client is served. The mark is removed last, so a start that is interrupted before
is followed by one that does it again, with other ids. docs/guarantees.md describes what clients see.
"""

import logging
from collections.abc import Iterable
from itertools import islice

from ...effects.counts import count_text
from ...effects.disk import Disk
from ...storage.backup.restore import mark_path
from ..groups.consumer.coordinator import ConsumerGroups
from ..groups.coordinator import GroupCoordinator
from ..groups.members import Leaving
from ..groups.share.coordinator import ShareGroups
from ..producers.names_log import NamedProducers
from ..shared import Shared
from ..topics.names import INTERNAL
from ..transactions.coordinator import TransactionCoordinator
from ..transactions.settling import with_room
from ..transactions.states.transaction import Status

log = logging.getLogger("fencepost.broker")

SKIPPED_PRODUCER_IDS = 1 << 40  # more than any broker gives out
SLICE = 200


def was_restored(disk: Disk, directory: str) -> bool:
    """Return whether this is the first start since the directory was restored from a backup."""
    return disk.exists(mark_path(directory))


async def fence_all(
    shared: Shared,
    groups: GroupCoordinator,
    assigned: Iterable[ConsumerGroups | ShareGroups],
    transactions: TransactionCoordinator,
    producers: NamedProducers,
) -> None:
    """Make all producer ids, epochs and group generations that clients of the old broker hold invalid. Raises
    KafkaError if the disk has no room.
    """
    await with_room(shared.clock, lambda: shared.topics.skip_producer_ids(SKIPPED_PRODUCER_IDS))
    await with_room(shared.clock, lambda: shared.topics.fence_leader_epoch(shared.clock.now_ms()))
    ids = iter(list(transactions.transactions))
    while some := list(islice(ids, SLICE)):
        is_open = [each for each in some if transactions.transactions[each].status is Status.ONGOING]
        others = [each for each in some if each not in is_open]
        # An open transaction is aborted, which writes to all its partitions: each gets a unit of its own.
        for names in ([others] if others else []) + [[each] for each in is_open]:
            await with_room(shared.clock, lambda: transactions.renew(names))  # noqa: B023
    await with_room(shared.clock, producers.fence_all)
    dismissed = 0
    for group_id, group in list(groups.groups.items()):
        leaving = [Leaving(member_id) for member_id in group.members]
        dismissed += len(leaving)
        if leaving:
            groups.leave(group_id, leaving)
    dismissed += sum(each.dismiss() for each in assigned)
    log.info(
        "restored from a backup: %s a new producer id, %s join again",
        count_text(len(transactions.transactions), "transactional id has", "transactional ids each have"),
        count_text(dismissed, "member of a group has to", "members of groups have to"),
    )


def forget_mark(disk: Disk, directory: str, shared: Shared) -> None:
    """Remove the mark of a restored directory, so that the next start does not fence clients again. The mark stays if a
    coordinator's log is offline, because that log's clients are not fenced yet.
    """
    offline = [each for each in shared.store.logs.values() if each.topic in INTERNAL and each.offline is not None]
    if offline:
        names = ", ".join(f"{each.topic}-{each.partition}" for each in offline)
        log.warning("restored from a backup, with %s offline: the next start fences clients again", names)
        return
    disk.unlink(mark_path(directory))
    disk.sync_directory(directory)
