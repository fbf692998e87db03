"""What a mirror is called on the target: its group, its transactions, its map. Pure.

The name of a mirror chooses all of them, so an access rule for the prefix `fencepost-mirror` covers a mirror.
"""

PREFIX = "fencepost-mirror"

MAP_TOPIC = f"{PREFIX}-map"
"""The compacted topic on the target with the maps of offsets of all mirrors. It has one partition."""

DEFAULT_NAME = "default"
_CUTOVER = "cutover"


def group_id(mirror: str) -> str:
    """Return the id of the consumer group on the target whose members are the mirror's tasks. Its committed offsets are
    the mirror's positions.
    """
    return f"{PREFIX}-{mirror}"


def transactional_id(mirror: str, task: str) -> str:
    """Return the transactional id of one task. task: a text that no other task has, nor had before; not "cutover"."""
    return f"{PREFIX}-{mirror}-{task}"


def cutover_id(mirror: str) -> str:
    """Return the transactional id of the mirror's cutovers."""
    return transactional_id(mirror, _CUTOVER)


def is_cutover_id(transactional_id: str) -> bool:
    """Return whether this is the transactional id of the cutovers of any mirror."""
    return transactional_id.endswith(f"-{_CUTOVER}")


def is_own(topic: str) -> bool:
    """Return whether the topic belongs to mirrors, so that no mirror copies it."""
    return topic == MAP_TOPIC
