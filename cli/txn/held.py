"""Which transaction holds back the committed offsets of a group, as facts and as one sentence. Pure.

The rule: as in blocking.py, with id, age, owner and group, and the command to run if no coordinator will end it.
"""

from typing import TYPE_CHECKING, Any

from .blocking import holder, sentence, transaction_facts

if TYPE_CHECKING:
    from ...client.admin.values import HeldOffsets

_SHOWN = 5


def held_facts(held: "HeldOffsets", now_ms: int) -> dict[str, Any]:
    """Return, as a JSON object, the group, the partitions whose committed offsets an open transaction keeps pending,
    and that transaction.
    """
    return {
        "group": held.group_id,
        "holds": [str(each) for each in held.partitions],
        "log_partition": held.open.topic_partition.partition,
        **transaction_facts(held.open, held.description, held.prepared, held.since_ms, now_ms),
        "hangs": held.hangs,
    }


def held_sentence(facts: dict[str, Any]) -> str:
    """Return the facts of held_facts() in one sentence."""
    holds, more = facts["holds"][:_SHOWN], len(facts["holds"]) - _SHOWN
    where = ", ".join(holds) + (f" and {more} more" if more > 0 else "")
    at = f"__consumer_offsets:{facts['log_partition']}"
    return (
        f"group {facts['group']}: its offsets of {where} are held by {holder(facts, at)};"
        " a member that starts waits for the end of it"
    )


def cause_sentence(facts: dict[str, Any]) -> str:
    """Return one sentence for the facts of held_facts, blocked_facts, leaderless_facts or full_windows."""
    if "share_group" in facts:
        from .windows import window_sentence

        return window_sentence(facts)
    return held_sentence(facts) if "group" in facts else sentence(facts)
