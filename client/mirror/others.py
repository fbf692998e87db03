"""Other mirrors that must not run beside this one: those that write to the same topic, and those that copy it back.

A mirror of the same name from another source is one too, since its tasks are members of the same group. With the
classic group protocol it cannot join (`assignor.py`); with the newer one it can.

The rule: a mirror looks for them whenever it has committed its first positions, or asks for its positions. So of two
that begin at the same time at least one finds the other. A login that may not describe the group of another mirror does
not find it.
"""

from collections.abc import AsyncIterator, Mapping

from ..admin.admin import Admin
from ..errors import AuthorizationError, IllegalStateError
from .names import PREFIX, group_id
from .positions import Position, decode_position


async def find_rivals(
    target: Admin, mirror: str, copies: Mapping[str, bytes], sources: Mapping[str, bytes]
) -> dict[str, str]:
    """Return, for topics on the target to which another mirror copies, that mirror's group: this mirror's own one if
    it copies from another topic of that name. copies, sources: the topics' ids on the target and on the source.
    """
    return {
        topic: group
        async for group, topic, position in _positions(target)
        if topic in copies
        and position.is_of_copy(copies[topic])
        and (group != group_id(mirror) or position.topic_id != sources[topic])
    }


async def find_circles(source: Admin, copies: Mapping[str, bytes]) -> dict[str, str]:
    """Return, for topics that another mirror copies from the target to the source, that mirror's group on the source.
    Whatever is written to one of both would come back without end. copies: the topics' ids on the target.
    """
    return {
        topic: group
        async for group, topic, position in _positions(source)
        if any(position.topic_id) and copies.get(topic) == position.topic_id
    }


async def _positions(admin: Admin) -> AsyncIterator[tuple[str, str, Position]]:
    """Yield the positions of all mirrors to this cluster that this login may see: the mirror's group, and the topic."""
    try:
        groups = [each.group_id for each in await admin.list_groups() if each.group_id.startswith(f"{PREFIX}-")]
        for group in groups:
            for partition, committed in (await admin.list_group_offsets(group)).items():
                try:
                    yield group, partition.topic, decode_position(committed)
                except IllegalStateError:
                    continue  # not a mirror's, or that of a newer version
    except AuthorizationError:
        return


def rival_text(group: str, mirror: str) -> str:
    """Return the cause: another mirror writes to the topic, or one of this name from another source."""
    if group == group_id(mirror):
        return (
            f"the group {group} has positions of another topic of that name: a mirror of this name copies it from"
            " another source, or it was deleted on the source and made again"
        )
    return f"another mirror copies to it on the target, with the group {group}"


def circle_text(group: str) -> str:
    """Return the cause: the topic is copied in a circle."""
    return (
        f"another mirror copies it from the target to the source, with the group {group} there: records would go round"
    )


RIVAL_HINT = "leave it out of --topics of one of both; if the other mirror is over, delete its group on the target"
CIRCLE_HINT = "stop the other mirror; if it is over, delete its group on the source"
