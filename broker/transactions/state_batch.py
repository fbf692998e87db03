"""Encodes states of one transactional id as a batch for __transaction_state, faster than records.py. Pure.

The rule: the bytes are the same as those of records.value and keyed_batch. States that differ only in numbers have the
same layout, which holds for nearly all. So each layout is computed once, and then filled in by one call. It matters
because a transaction writes three states.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct

from ...protocol.batches import Batch
from ...protocol.records import batch_of_payload, keyed_record
from . import records
from .records import REMEMBERED_PARTITIONS
from .states.transaction import NO_EPOCH, NO_ID, NO_OFFSET, TWO_PHASE_TIMEOUT_MS, PartitionKey, Status, Transaction

_HEAD_BYTES = 17  # of a value, before its partitions; then times of 16 bytes, tags, and numbers in the last two tags
_VERSION_BYTES = 2
_TIMES_BYTES = 16
_OURS_BYTES = 18
_OPENED_AT_BYTES = 8  # after the head of its tag, which is the last

Layout = tuple[Callable[..., bytes], bytes, bytes, bytes, bytes]
"""What fills a record in; and of its bytes those before the key, those after it, the partitions, and the tags."""


def state_batch(key: bytes, states: Sequence[Transaction], now_ms: int, *, gone: bool = False) -> Batch:
    """Return one batch with these states of an id, in their order. now_ms: wall time.

    gone: whether a tombstone follows them, which removes the id.
    """
    pieces = [_record(number, key, state) for number, state in enumerate(states)]
    if gone:
        pieces.append(keyed_record(len(states), key, None))
    return batch_of_payload(b"".join(pieces), len(pieces), now_ms)


def _record(number: int, key: bytes, txn: Transaction) -> bytes:
    """Encode one state as record `number` of the batch, by filling the fields into a layout that is kept for all states
    with the same partitions. A state with fields that the layout lacks is encoded by records.py.
    """
    (
        _,
        producer_id,
        epoch,
        timeout_ms,
        status,
        partitions,
        start_ms,
        last_update_ms,
        started_age_ms,
        updated_age_ms,
        last_epoch,
        previous_id,
        next_id,
        next_epoch,
        client_version,
        _,
        prepared,
        opened_at,
    ) = txn
    if (
        status is Status.EMPTY
        or previous_id != NO_ID
        or next_id != NO_ID
        or next_epoch != NO_EPOCH
        or timeout_ms == TWO_PHASE_TIMEOUT_MS
        or prepared is not None
        or opened_at == NO_OFFSET
        or len(partitions) > REMEMBERED_PARTITIONS
    ):
        return keyed_record(number, key, records.value(txn))
    fill, begins, goes_on, middle, tags = _layout(number, len(key), tuple(partitions.items()), client_version)
    return fill(
        begins,
        key,
        goes_on,
        producer_id,
        epoch,
        timeout_ms,
        status,
        middle,
        last_update_ms,
        start_ms,
        tags,
        last_epoch,
        started_age_ms,
        updated_age_ms,
        records.OPENED_AT_HEAD,
        opened_at,
    )


@lru_cache(maxsize=4096)
def _layout(
    number: int, key_bytes: int, partitions: tuple[tuple[PartitionKey, int], ...], client_version: int
) -> Layout:
    """Return the position of each field in a record, for keys of this size and these partitions.

    The positions are found in a record that records.py encoded with placeholder values.
    """
    written = Transaction("", 0, 0, 0, Status.ONGOING, dict(partitions), client_version=client_version, opened_at=0)
    value = records.value(written)
    key = b"\xff" * key_bytes  # which is nowhere else: a key has four bytes at least
    begins, _, rest = keyed_record(number, key, value).partition(key)
    value_at = len(rest) - len(value) - 1  # after the value comes the number of headers, 0
    goes_on = rest[: value_at + _VERSION_BYTES]
    middle, _ = records.encode_partitions(partitions)
    last_tag_bytes = len(records.OPENED_AT_HEAD) + _OPENED_AT_BYTES
    tags = value[_HEAD_BYTES + len(middle) + _TIMES_BYTES : -_OURS_BYTES - last_tag_bytes]
    layout = (
        f">{len(begins)}s{key_bytes}s{len(goes_on)}sqhib{len(middle)}sqq{len(tags)}shqq{len(records.OPENED_AT_HEAD)}sqx"
    )
    return Struct(layout).pack, begins, goes_on, middle, tags
