"""Finds out whether this login sees everything: brokers leave out of their lists, silently, what a login may not
describe.

The rule: ask about names that nothing has. A login that may describe all names is answered "not found"; "not
authorized" means that the broker's lists may be incomplete for it.
"""

from collections.abc import Awaitable, Collection
from typing import Any

from ...client.admin.admin import Admin
from ...client.errors import AuthorizationError, KafkaError

NAME = "a-name-by-which-the-console-asks-for-its-rights"
ONLY = "only what this login may describe"
_CONSUMER_OFFSETS, _TRANSACTION_STATE = "__consumer_offsets", "__transaction_state"


async def left_out(admin: Admin, topics: Collection[str]) -> tuple[str, ...]:
    """Return lines that name the kinds of things that the broker's lists may lack for this login. topics: the names in
    its list of topics.

    Groups and transactions are asked about only if their internal topic exists: without it there are none, and the
    question would make the broker create it. A login that may not see all topics cannot know that: one line names all.
    """
    if await _is_refused(admin.describe_topics(NAME)):
        return (f"topics, groups, transactions: {ONLY}",)
    found: list[str] = []
    if _CONSUMER_OFFSETS in topics and await _is_refused(admin.describe_groups(NAME)):
        found.append(f"groups: {ONLY}")
    if _TRANSACTION_STATE in topics and await _is_refused(admin.describe_transactions(NAME)):
        found.append(f"transactions: {ONLY}")
    return tuple(found)


async def _is_refused(asking: Awaitable[Any]) -> bool:
    """Return whether this call of Admin fails because the login lacks the right."""
    try:
        await asking
    except AuthorizationError:
        return True
    except KafkaError:  # it does not exist; or the broker is too old, or busy
        pass
    return False
