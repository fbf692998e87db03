"""The first start on a directory that was restored from a backup: whoever knew what came after the backup is fenced.

The rule: a backup is of a moment, and clients of the broker it was taken from went on. What they hold must not be
mistaken for what this broker gives to others from now on:

    producer ids       the next one is far above all that may have been given after the backup
    transactional ids  each gets a new producer id, and what was open is aborted (transactions/renewal.py)
    groups             nobody is a member: who comes with an old generation joins again, and reads the offsets of here

All of it is durable before the first client is served, and the mark is removed last: a start that ends before does it
again, with other ids. docs/guarantees.md tells users what their clients see.
"""

import logging
from itertools import islice

from ...effects.disk import Disk
from ...storage.backup.restore import mark_path
from ..groups.coordinator import GroupCoordinator
from ..groups.members import Leaving
from ..shared import Shared
from ..topics.names import INTERNAL
from ..transactions.coordinator import TransactionCoordinator
from ..transactions.settling import with_room
from ..transactions.transaction import Status

log = logging.getLogger("fencepost.broker")

SKIPPED_PRODUCER_IDS = 1 << 40  # no broker gives so many
SLICE = 200


def was_restored(disk: Disk, directory: str) -> bool:
    """Whether this is the first start since the directory was restored."""
    return disk.exists(mark_path(directory))


async def fence_all(shared: Shared, groups: GroupCoordinator, transactions: TransactionCoordinator) -> None:
    """Have no client go on with what it got from another broker. Raises KafkaError if there is no room for it."""
    await with_room(shared.clock, lambda: shared.topics.skip_producer_ids(SKIPPED_PRODUCER_IDS))
    ids = iter(list(transactions.transactions))
    while some := list(islice(ids, SLICE)):
        is_open = [each for each in some if transactions.transactions[each].status is Status.ONGOING]
        others = [each for each in some if each not in is_open]
        for names in ([others] if others else []) + [[each] for each in is_open]:
            await with_room(shared.clock, lambda: transactions.renew(names))  # noqa: B023
    dismissed = 0
    for group_id, group in list(groups.groups.items()):
        leaving = [Leaving(member_id) for member_id in group.members]
        dismissed += len(leaving)
        if leaving:
            groups.leave(group_id, leaving)
    log.info(
        "restored from a backup: %d transactional ids have new producer ids, %d members of groups are to join again",
        len(transactions.transactions),
        dismissed,
    )


def forget_mark(disk: Disk, directory: str, shared: Shared) -> None:
    """All of it is durable: the next start is an ordinary one, unless a coordinator's log could not be read."""
    offline = [each for each in shared.store.logs.values() if each.topic in INTERNAL and each.offline is not None]
    if offline:
        names = ", ".join(f"{each.topic}-{each.partition}" for each in offline)
        log.warning("restored from a backup, with %s offline: the next start fences clients again", names)
        return
    disk.unlink(mark_path(directory))
    disk.sync_directory(directory)
