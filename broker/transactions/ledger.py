"""The ledger: the last decision under each key, and the prepared transactions that wait for a decision. Pure.

The rules (docs/apis.md): a decision is made only once. A higher number, by the same owner or with a takeover, is a new
decision. The same number, owner, digest and outcome is a repetition, which is a success. Anything else is a conflict
and changes nothing. A new decision is made only if each transaction that it names waits for exactly this decision. Only
an admin can remove entries, because a repeated request must find the decision that it repeats. The word ledger is in
docs/glossary.md.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ...protocol.errors import ErrorCode
from .states.transaction import Transaction

RECORD_VERSION = 0
LONGEST_KEY_BYTES = 1000
LONGEST_DIGEST_BYTES = 256

_VALUE = Struct(">hq?qh")  # version, number, committed, wall time, size of the owner; then owner, then digest
_INT16 = Struct(">h")


class Entry(NamedTuple):
    """The last decision made under a ledger key. decided_ms: wall time."""

    number: int
    owner: str
    digest: bytes
    committed: bool
    decided_ms: int


class Item(NamedTuple):
    """A transaction that a decision names, with its producer id and epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Proposal(NamedTuple):
    """A request to decide: to commit (or abort) the transactions in `items` as decision `number` under `key`.

    takeover: allows a new owner to make decisions with higher numbers under a key that another owner used. digest: the
    sink's own fingerprint of the decision; a repeated decision must have the same one.
    """

    key: str
    number: int
    owner: str
    digest: bytes
    commit: bool
    takeover: bool
    items: tuple[Item, ...]


class Verdict(Enum):
    """What to do with a proposal, according to the last entry of its key alone."""

    DECIDE = "new"
    ALREADY_DECIDED = "the same again"
    CONFLICT = "there is another decision"


def judge(entry: Entry | None, proposal: Proposal) -> Verdict:
    """Return what to do with a proposal.

    DECIDE if its number is higher than that of the entry, and the owner is the same or takeover is set; ALREADY_DECIDED
    if it repeats the entry; else CONFLICT. entry: the last decision of its key; None if there is none.
    """
    if entry is None:
        return Verdict.DECIDE
    if proposal.number > entry.number and (proposal.owner == entry.owner or proposal.takeover):
        return Verdict.DECIDE
    same = (proposal.number, proposal.owner, proposal.digest, proposal.commit)
    return Verdict.ALREADY_DECIDED if same == entry[:4] else Verdict.CONFLICT


def waits_for(txn: Transaction | None, item: Item, key: str, number: int) -> bool:
    """Return whether `txn` is the transaction that `item` names and is prepared for decision `number` under `key`."""
    return (
        txn is not None
        and txn.prepared is not None
        and txn.producer_id == item.producer_id
        and txn.producer_epoch == item.producer_epoch
        and txn.prepared.number == number
        and txn.prepared.ledger_key == key
    )


def wrong_with(item: Item, txn: Transaction | None, proposal: Proposal, is_there: Callable[[int], object]) -> ErrorCode:
    """Return the error if the transaction that `item` names cannot be ended as proposed; NONE if it can.

    is_there: tells by log id whether a partition still exists. A transaction with a deleted partition can be aborted
    but not committed; but if it is held, the partitions that exist are committed, because its commit is already decided
    elsewhere (in a database).
    """
    if txn is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not waits_for(txn, item, proposal.key, proposal.number):
        other = (txn.producer_id, txn.producer_epoch) != (item.producer_id, item.producer_epoch)
        return ErrorCode.PRODUCER_FENCED if other else ErrorCode.INVALID_TXN_STATE
    assert txn.prepared is not None
    if proposal.commit and not txn.prepared.hold and not all(map(is_there, txn.partitions.values())):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def wrong_in(proposal: Proposal) -> str | None:
    """Return what makes a proposal invalid regardless of the ledger's entries, as a text for the client; None if it is
    valid.
    """
    if not 0 < len(proposal.key.encode()) <= LONGEST_KEY_BYTES:
        return f"a ledger key has between 1 and {LONGEST_KEY_BYTES} bytes"
    if proposal.number < 0:
        return "the number of a decision is not negative"
    if len(proposal.owner.encode()) > LONGEST_KEY_BYTES or len(proposal.digest) > LONGEST_DIGEST_BYTES:
        return f"an owner has at most {LONGEST_KEY_BYTES} bytes, a digest {LONGEST_DIGEST_BYTES}"
    if len({item.transactional_id for item in proposal.items}) < len(proposal.items):
        return "a transaction is named twice"
    return None


class PreparedIds:
    """The ids of prepared transactions, by the ledger key whose decision they wait for. The coordinator updates it.
    len() is the number of ids.
    """

    def __init__(self) -> None:
        self._key_of: dict[str, str] = {}
        self._by_key: dict[str, dict[str, int]] = {}
        self._held: dict[str, dict[str, int]] = {}  # those of _by_key that are held

    def __len__(self) -> int:
        return len(self._key_of)

    def follow(self, transactional_id: str, txn: Transaction | None) -> None:
        """Update the table after an id has changed to this state; txn None: the id was removed."""
        if transactional_id in self._key_of:
            key = self._key_of.pop(transactional_id)
            for by_key in (self._by_key, self._held):
                waiting = by_key.get(key, {})
                waiting.pop(transactional_id, None)
                if not waiting:
                    by_key.pop(key, None)
        if txn is not None and txn.prepared is not None:
            key = self._key_of[transactional_id] = txn.prepared.ledger_key
            for by_key in (self._by_key, self._held) if txn.prepared.hold else (self._by_key,):
                by_key.setdefault(key, {})[transactional_id] = txn.prepared.number

    def keys(self) -> Iterable[str]:
        """Return the ledger keys for which transactions wait."""
        return self._by_key.keys()

    def held_keys(self) -> Collection[str]:
        """Return the ledger keys for which held transactions wait. The limit max.ledger.entries counts these keys as
        used.
        """
        return self._held.keys()

    def held_up_to(self, key: str, number: int) -> list[str]:
        """Return the ids of held transactions that wait under `key` for decision `number` or a lower one."""
        return [transactional_id for transactional_id, waits in self._held.get(key, {}).items() if waits <= number]

    def all(self) -> Iterable[str]:
        """Return every waiting transactional id."""
        return self._key_of.keys()

    def on(self, key: str) -> Mapping[str, int]:
        """Return the ids that wait under a key, with the number of the decision that each waits for."""
        return self._by_key.get(key, {})

    def up_to(self, key: str, number: int) -> list[str]:
        """Return the ids that wait under `key` for decision `number` or a lower one."""
        return [transactional_id for transactional_id, waits in self.on(key).items() if waits <= number]


# Records of __fencepost_ledger ---------------------------------------------------------------------------------------


class DamagedLedgerRecord(Exception):
    """Raised for bytes that are not a record of the ledger."""


class NewerLedgerRecord(Exception):
    """Raised for a record that a later version of fencepost wrote."""


def record_key(key: str) -> bytes:
    """Encode the key of a record: an int16 version, then the ledger key."""
    return _INT16.pack(RECORD_VERSION) + key.encode()


def record_value(entry: Entry) -> bytes:
    """Encode an entry as the value of its record (format: docs/formats.md)."""
    owner = entry.owner.encode()
    head = _VALUE.pack(RECORD_VERSION, entry.number, entry.committed, entry.decided_ms, len(owner))
    return head + owner + entry.digest


def read_record(key: bytes, value: bytes | None) -> tuple[str, Entry | None]:
    """Decode a record into ledger key and entry. The entry is None in a tombstone, which an admin's removal writes.

    Raises DamagedLedgerRecord, NewerLedgerRecord.
    """
    try:
        for version in [_INT16.unpack_from(part)[0] for part in (key, value) if part is not None]:
            if version != RECORD_VERSION:
                raise NewerLedgerRecord(f"the record has version {version}, {RECORD_VERSION} is known")
        name = key[_INT16.size :].decode()
        if value is None:
            return name, None
        _, number, committed, decided_ms, size = _VALUE.unpack_from(value)
        owner_ends = _VALUE.size + size
        if size < 0 or owner_ends > len(value) or not name:
            raise ValueError(f"the length of the owner is {size}, and {len(value) - _VALUE.size} bytes follow")
        return name, Entry(number, value[_VALUE.size : owner_ends].decode(), value[owner_ends:], committed, decided_ms)
    except (StructError, ValueError) as error:
        raise DamagedLedgerRecord(f"{key[:80]!r}: {error}") from error
