"""Other mirrors that must not run beside this one: two that write to one topic, or two that copy it in a circle.

The rule: a mirror looks for them whenever it has committed its first positions, or asks for its positions. So of two
that begin at the same time at least one finds the other. A login that may not describe the group of another mirror does
not find it.
"""

from collections.abc import AsyncIterator, Mapping

from ..admin.admin import Admin
from ..errors import AuthorizationError, IllegalStateError
from .names import PREFIX, group_id
from .positions import Position, decode_position


async def find_rivals(target: Admin, mirror: str, copies: Mapping[str, bytes]) -> dict[str, str]:
    """Return, for topics on the target to which another mirror copies, that mirror's group. copies: the topics' ids on
    the target.
    """
    return {
        topic: group
        async for group, topic, position in _positions(target)
        if group != group_id(mirror) and topic in copies and position.is_of_copy(copies[topic])
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


def rival_text(group: str) -> str:
    """Return the cause: another mirror writes to the topic."""
    return f"another mirror copies to it on the target, with the group {group}"


def circle_text(group: str) -> str:
    """Return the cause: the topic is copied in a circle."""
    return (
        f"another mirror copies it from the target to the source, with the group {group} there: records would go round"
    )


RIVAL_HINT = "leave it out of --topics of one of both; if the other mirror is over, delete its group on the target"
CIRCLE_HINT = "stop the other mirror; if it is over, delete its group on the source"
