"""Quotas as records of the security log: one for each entity and kind. Pure. docs/formats.md, "Security log"."""

from typing import Any, NoReturn

import msgpack

from ..packed_list import unpack_list
from .entities import CLIENT_ID, IP, RULES, USER, Entity, Quotas, entity_of, is_of_address

QUOTA = "quota"  # the kind of these records
RECORD_VERSION = 0
_TYPES = ((USER,), (CLIENT_ID,), (CLIENT_ID, USER), (IP,))

Change = tuple[bytes, bytes | None]
"""A record to be: its key and value; without a value, the quota that the key names is gone."""


class DamagedQuotaRecord(Exception):
    """Raised for a record of a quota that this broker cannot have written."""


class NewerQuotaRecord(Exception):
    """Raised for a record that a later version of fencepost wrote."""


def quota_set(entity: Entity, key: str, value: float) -> Change:
    """Return the record that sets a quota."""
    return _key(entity, key), msgpack.packb([RECORD_VERSION, float(value)])


def quota_removed(entity: Entity, key: str) -> Change:
    """Return the record that removes a quota."""
    return _key(entity, key), None


def apply_quota(quotas: Quotas, key: bytes, value: bytes | None) -> None:
    """Apply a record of the log to the quotas. Raises DamagedQuotaRecord, NewerQuotaRecord; then nothing was
    changed.
    """
    entity, kind = _subject_of(key)
    if value is None:
        quotas.put(entity, kind, None)
        return
    match unpack_list(value, DamagedQuotaRecord):
        case [0, float(limit)] if limit > 0:
            quotas.put(entity, kind, limit)
        case [int(version), *_] if version > RECORD_VERSION:
            raise NewerQuotaRecord(f"the quota has version {version}, {RECORD_VERSION} is known")
        case _:
            _refuse("the value of a quota is not as this broker writes it")


def _key(entity: Entity, key: str) -> bytes:
    """Return the key of the record of this entity's quota of the kind `key`."""
    packed: bytes = msgpack.packb([QUOTA, key, *([type_, name] for type_, name in entity)])
    return packed


def _subject_of(key: bytes) -> tuple[Entity, str]:
    """Return the entity and the kind of quota in the key of a record. Raises DamagedQuotaRecord, NewerQuotaRecord."""
    _, *parts = unpack_list(key, DamagedQuotaRecord)
    if not parts or not isinstance(parts[0], str) or not all(map(_is_part, parts[1:])):
        _refuse("the key does not name a quota")
    kind, entity = parts[0], entity_of({part[0]: part[1] for part in parts[1:]})
    if kind not in RULES:
        raise NewerQuotaRecord(f"this broker does not know the kind of quota {kind!r}")
    if tuple(type_ for type_, _ in entity) not in _TYPES or RULES[kind].of_address != is_of_address(entity):
        _refuse("the quota is for an entity that cannot have it")
    return entity, kind


def _is_part(part: Any) -> bool:
    """Return whether this is a pair of an entity's type and name; None is the default of the type."""
    match part:
        case [str(), str() | None]:
            return True
    return False


def _refuse(why: str) -> NoReturn:
    """Raise DamagedQuotaRecord with this text."""
    raise DamagedQuotaRecord(why)
