"""The section about the broker in the report of a failed test: open transactions, partitions' offsets, faults, the
last requests.
"""

from typing import Any

from ..protocol.errors import KafkaError
from .observing import TransactionSeen

SHOWN_REQUESTS = 30
SHOWN_TOPICS = 20
DECIDED = ("CompleteCommit", "CompleteAbort", "Empty", "Dead")


def describe(broker: Any) -> str:
    """Return the text about this broker for a failed test's report. Never raises and never waits long."""
    lines = [repr(broker)]
    if not broker.answers:
        lines.append("it does not answer now")
    else:
        try:
            lines += _transactions(broker) + _offsets(broker)
        except (OSError, KafkaError, ValueError) as error:
            lines.append(f"it cannot be asked: {error}")
    lines += broker.fault_lines()
    recent = broker.recent_requests()[-SHOWN_REQUESTS:]
    lines += ["", f"last {len(recent)} requests", *(f"  {line}" for line in recent)] if recent else []
    return "\n".join(lines)


def _transactions(broker: Any) -> list[str]:
    """Return the broker's open transactions as lines of a failure report."""
    found: list[TransactionSeen] = [one for one in broker.transactions() if one.state not in DECIDED]
    if not found:
        return ["no open transactions"]
    lines = ["", "open transactions"]
    for one in found:
        where = ", ".join(map(str, one.partitions)) or "nothing yet"
        lines.append(f"  {one.transactional_id}  {one.state}  pid {one.producer_id} epoch {one.epoch}  {where}")
    return lines


def _offsets(broker: Any) -> list[str]:
    """Return each partition's offsets as lines of a failure report."""
    topics = broker.topics()
    lines = ["", "partition  start  LSO  HW"]
    for name, partitions in list(topics.items())[-SHOWN_TOPICS:]:
        for number in range(partitions):
            place = name, number
            start, lso, hw = broker.start_offset(place), broker.lso(place), broker.hw(place)
            lines.append(
                f"  {name}-{number}  {start}  {lso}  {hw}" + ("  blocked by a transaction" if lso < hw else "")
            )
    return lines
