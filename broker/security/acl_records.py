"""Rules of access as records of the security log. Pure. docs/formats.md, "Security log"."""

from typing import Any, NoReturn

import msgpack

from ...protocol.errors import KafkaError
from ..packed_list import unpack_list
from .acls import AclBinding, Operation, PatternType, Permission, ResourceType, check_binding
from .authorizer import Authorizer

ACL = "acl"  # the kind of these records
RECORD_VERSION = 0
_CODES = (ResourceType, PatternType, str, str, str, Operation, Permission)

Change = tuple[bytes, bytes | None]
"""A record to be: its key and value; without a value, the rule that the key names is gone."""


class DamagedAclRecord(Exception):
    """Raised for a record of the log whose content this broker could not have written."""


class NewerAclRecord(Exception):
    """Raised for a record that a later version of fencepost wrote."""


def acl_added(binding: AclBinding) -> Change:
    """Return the record that adds an ACL."""
    return _key(binding), msgpack.packb([RECORD_VERSION])


def acl_removed(binding: AclBinding) -> Change:
    """Return the record that removes an ACL."""
    return _key(binding), None


def apply_acl(authorizer: Authorizer, key: bytes, value: bytes | None) -> None:
    """Add or remove the ACL in a record. Raises DamagedAclRecord or NewerAclRecord, and changes nothing then."""
    binding = _binding_of(key)
    if value is None:
        authorizer.remove(binding)
        return
    match unpack_list(value, DamagedAclRecord):
        case [0]:
            authorizer.add(binding)
        case [int(version), *_] if version > RECORD_VERSION:
            raise NewerAclRecord(f"the ACL has version {version}, {RECORD_VERSION} is known")
        case _:
            _refuse("the value of an ACL is not as this broker writes it")


def _key(binding: AclBinding) -> bytes:
    """Return the key of the record for an ACL binding: the msgpack list of its fields."""
    packed: bytes = msgpack.packb([ACL, *(int(part) if isinstance(part, int) else part for part in binding)])
    return packed


def _binding_of(key: bytes) -> AclBinding:
    """Decode a record's key into an ACL. Raises DamagedAclRecord, NewerAclRecord."""
    kind, *parts = unpack_list(key, DamagedAclRecord)
    if kind != ACL or len(parts) != len(_CODES):
        _refuse("the key does not name an ACL")
    made: list[Any] = []
    for of, part in zip(_CODES, parts, strict=True):
        if not isinstance(part, str if of is str else int):
            _refuse("a part of the ACL has the wrong type")
        try:
            made.append(of(part))
        except ValueError:
            raise NewerAclRecord(f"this broker does not know the code {part} of {of.__name__}") from None
    binding = AclBinding(*made)
    try:
        check_binding(binding)
    except KafkaError as error:
        _refuse(error.detail)
    return binding


def _refuse(why: str) -> NoReturn:
    """Raise DamagedAclRecord for this reason."""
    raise DamagedAclRecord(why)
