"""The transactional ids of the producers whose records are shown, as far as they can be found.

The rule: an id is shown only if a coordinator knows it or the console has seen it; an expired one is not guessed, and
the page shows producer id and epoch.
"""

from collections.abc import Iterable, Mapping

from ...client.admin.admin import Admin
from ...client.records.fates import Entry
from ...protocol.errors import KafkaError

Names = Mapping[tuple[int, int], str]
"""(producer id, epoch) → transactional id."""
_MAX_ASKED = 200


async def find_names(admin: Admin, entries: Iterable[Entry], remembered: Names) -> dict[int, str]:
    """Return producer id → transactional id for the transactional entries. remembered: ids that are known already;
    others are asked from the broker. An id that is not found is left out.
    """
    by_id = {producer_id: name for (producer_id, _), name in remembered.items()} if remembered else {}
    wanted = {each.producer_id for each in entries if each.transactional and each.producer_id >= 0}
    missing = sorted(wanted - by_id.keys())[:_MAX_ASKED]
    if missing:
        try:
            listed = await admin.list_transactions(producer_ids=missing)
        except KafkaError:  # before Kafka 3.0, or not allowed
            listed = []
        by_id |= {each.producer_id: each.transactional_id for each in listed}
    return {each: by_id[each] for each in wanted if each in by_id}
