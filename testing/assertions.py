"""Assertions about topics of a broker: every record exactly once, every transaction as a whole or not at all.

The rule: a failure lists the records, not only their number. Records are read with read_committed, like a consumer.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ..client.values import Record
from .observing import Attempt, Observed

SHOWN = 10

KeyOf = Callable[[Record], Hashable]


class Asserting(Observed):
    """The assertions, for an observed broker."""

    def assert_exactly_once(self, source: str, destination: str, key: KeyOf | None = None) -> None:
        """Check that each record of `source` has exactly one in `destination`, and that `destination` has no other
        records.

        key: returns what identifies a record in both topics; by default its key and value. Both are read with
        read_committed. Raises AssertionError.
        """
        identity = key or _key_and_value
        wanted = Counter(identity(record) for record in self.records(source))
        found = Counter(identity(record) for record in self.records(destination))
        lost, extra = wanted - found, found - wanted
        twice = {one: count for one, count in extra.items() if one in wanted}
        strange = [one for one in extra if one not in wanted]
        problems: list[str] = []
        if lost:
            problems.append(f"lost {lost.total()}: {_some(lost)}")
        if twice:
            problems.append(f"more than once {sum(twice.values())}: {_some(twice)}")
        if strange:
            problems.append(f"not from {source} {len(strange)}: {_some(strange)}")
        assert not problems, f"{source} → {destination}, {wanted.total()} records: " + "; ".join(problems)

    def assert_atomic(self, topics: Iterable[str], txn: KeyOf) -> None:
        """Check that of each transaction either all records are visible, once each, or none is.

        txn: returns a record's transaction, for example a header that the test has set; None for records in no
        transaction. All written records are read with read_uncommitted, so an attempt that was aborted and repeated
        counts once. Equal records that one attempt wrote to one partition count as several. Raises AssertionError.
        """
        written: dict[Hashable, Counter[Any]] = defaultdict(Counter)
        visible: dict[Hashable, Counter[Any]] = defaultdict(Counter)
        stored: dict[Hashable, Counter[Any]] = defaultdict(Counter)
        attempts: dict[Hashable, dict[Any, set[Attempt]]] = defaultdict(lambda: defaultdict(set))
        for topic in topics:
            tried: dict[Hashable, Counter[Any]] = defaultdict(Counter)
            for record, attempt, _ in self._read_attempts(topic, "read_uncommitted"):
                label, content = txn(record), _topic_and_content(record)
                tried[label][content, attempt] += 1
                written[label][content] = max(written[label][content], tried[label][content, attempt])
            for record, attempt, sequence in self._read_attempts(topic, "read_committed"):
                label, content = txn(record), _topic_and_content(record)
                visible[label][content] += 1
                attempts[label][content].add(attempt)
                stored[label][content, attempt, sequence] += 1
        problems: list[str] = []
        for label, contents in written.items():
            seen = visible.get(label)
            if label is None or not seen:
                continue
            missing = contents - seen
            again = {one[0] for one, count in stored[label].items() if count > 1}  # of the same sequence number
            twice = [one for one, of in attempts[label].items() if len(of) > 1 or one in again]
            if missing:
                counts = f"{seen.total()} visible, {missing.total()} not"
                problems.append(f"transaction {label!r}: {counts}: {_some(missing)}")
            if twice:
                problems.append(f"transaction {label!r}: visible more than once: {_some(twice)}")
        assert not problems, "\n".join(problems)


def _key_and_value(record: Record) -> Hashable:
    """Return what identifies a record by default: its key and value."""
    return record.key, record.value


def _topic_and_content(record: Record) -> Hashable:
    """Return topic, key and value of a record."""
    return record.topic, record.key, record.value


def _some(found: Iterable[Any]) -> str:
    """Return the first few items as text for a message."""
    listed = list(found)
    text = ", ".join(map(repr, listed[:SHOWN]))
    return text + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "")
