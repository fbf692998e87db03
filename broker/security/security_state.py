"""The state that the security log stores: rules of access, users and quotas.

Only records of the log change it. Pure.
"""

import msgpack

from ..quotas.entities import Quotas
from ..quotas.quota_records import QUOTA, DamagedQuotaRecord, NewerQuotaRecord, apply_quota
from .acl_records import ACL, DamagedAclRecord, NewerAclRecord, apply_acl
from .authorizer import Authorizer
from .credentials import SECRET, USER, DamagedUserRecord, NewerUserRecord, ScramUsers


class UnknownRecord(Exception):
    """Raised for a record of a kind that only a later version of fencepost knows."""


DAMAGED_RECORD = (DamagedAclRecord, DamagedUserRecord, DamagedQuotaRecord)
NEWER_RECORD = (UnknownRecord, NewerAclRecord, NewerUserRecord, NewerQuotaRecord)


class SecurityState:
    """The ACLs, users and quotas of one broker."""

    def __init__(self, authorizer: Authorizer) -> None:
        """authorizer: one without ACLs, to be filled by apply()."""
        self.authorizer = authorizer
        self.users = ScramUsers()
        self.quotas = Quotas()

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply a record of the log. Raises the errors in DAMAGED_RECORD and NEWER_RECORD."""
        kind = _kind_of(key)
        if kind == ACL:
            apply_acl(self.authorizer, key, value)
        elif kind in (USER, SECRET):
            self.users.apply(key, value)
        elif kind == QUOTA:
            apply_quota(self.quotas, key, value)
        else:
            raise UnknownRecord(f"this broker does not know the kind of record {kind!r}")


def _kind_of(key: bytes) -> str:
    """Return the kind of record, which begins its key. Raises DamagedAclRecord."""
    try:
        match msgpack.unpackb(key, raw=False):
            case [str(kind), *_]:
                return kind
    except (ValueError, TypeError, msgpack.UnpackException):
        pass
    raise DamagedAclRecord("the key of the record does not parse")
