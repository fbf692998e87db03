"""Rules of access as records: what was written comes back, and nothing else is taken for one."""

import msgpack
import pytest
from acl_client import rule
from fencepost.broker.security.acl_records import (
    ACL,
    DamagedAclRecord,
    NewerAclRecord,
    acl_added,
    acl_removed,
    apply_acl,
)
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.credentials import Mechanism, credential_from, credential_set, secret_set
from fencepost.broker.security.security_state import SecurityState, UnknownRecord

RULES = [
    rule("allow User:alice READ TOPIC = orders"),
    rule("deny User:* ALL GROUP ^ o @10.0.0.1"),
    rule("allow User:é TWO_PHASE_COMMIT TRANSACTIONAL_ID = *"),
    rule("allow Group: DESCRIBE CLUSTER = kafka-cluster @::1"),
]
KEY = [ACL, 2, 3, "orders", "User:alice", "*", 3, 3]


@pytest.mark.parametrize("binding", RULES)
def test_an_acl_record_reads_back_and_its_tombstone_removes_the_acl(binding) -> None:
    authorizer = Authorizer()
    apply_acl(authorizer, *acl_added(binding))
    assert list(authorizer) == [binding]
    apply_acl(authorizer, *acl_added(binding))
    assert list(authorizer) == [binding]
    assert acl_added(binding)[0] == acl_removed(binding)[0], "compaction keeps the last of a key"
    apply_acl(authorizer, *acl_removed(binding))
    assert not list(authorizer)
    apply_acl(authorizer, *acl_removed(binding))


def test_acl_records_have_the_documented_bytes() -> None:
    key, value = acl_added(RULES[0])
    assert msgpack.unpackb(key) == KEY
    assert value is not None
    assert msgpack.unpackb(value) == [0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\xc1", b"\x91\x00"),
        ([], [0]),
        ("acl", [0]),
        (KEY[:-1], [0]),
        ([*KEY, 1], [0]),
        (["other", *KEY[1:]], [0]),
        ([*KEY[:3], 7, *KEY[4:]], [0]),
        ([*KEY[:6], "3", 3], [0]),
        ([ACL, 1, *KEY[2:]], [0]),
        ([*KEY[:3], "", *KEY[4:]], [0]),
        ([*KEY[:4], "alice", *KEY[5:]], [0]),
        (KEY, []),
        (KEY, [0, 1]),
        (KEY, [-1]),
        (KEY, ["0"]),
        (KEY, {"version": 0}),
        (KEY, b"\xc1"),
    ],
)
def test_an_invalid_acl_record_raises_damaged_acl_record_and_changes_nothing(key: object, value: object) -> None:
    authorizer = Authorizer()
    packed = [part if isinstance(part, bytes) else msgpack.packb(part) for part in (key, value)]
    with pytest.raises(DamagedAclRecord):
        apply_acl(authorizer, *packed)
    assert not list(authorizer)


@pytest.mark.parametrize(
    ("key", "value"),
    [(KEY, [1]), (KEY, [9, "more"]), ([ACL, 8, *KEY[2:]], [0]), ([*KEY[:6], 16, 3], [0]), ([*KEY[:7], 4], None)],
)
def test_an_acl_record_of_a_later_version_raises_newer_acl_record(key: object, value: object) -> None:
    authorizer = Authorizer()
    with pytest.raises(NewerAclRecord):
        apply_acl(authorizer, msgpack.packb(key), None if value is None else msgpack.packb(value))
    assert not list(authorizer)


def test_replaying_security_records_sets_acls_users_and_the_decoy_secret() -> None:
    """The decoy secret determines the credentials with which logins of unknown users are answered."""
    state = SecurityState(Authorizer())
    credential = credential_from(Mechanism.SHA_256, b"s" * 32, b"salt", 4096)
    for record in (secret_set(b"x" * 32), acl_added(RULES[0]), credential_set("alice", credential)):
        state.apply(*record)
    assert list(state.authorizer) == RULES[:1]
    assert list(state.users.of("alice")) == [credential]
    assert state.users.secret == b"x" * 32


def test_a_security_record_of_an_unknown_kind_raises_unknown_record() -> None:
    """A record whose key does not parse raises DamagedAclRecord."""
    state = SecurityState(Authorizer())
    with pytest.raises(UnknownRecord, match="'other'"):
        state.apply(msgpack.packb(["other", "alice"]), b"")
    for key in (b"", b"\xc1", msgpack.packb("acl"), msgpack.packb([1, "acl"])):
        with pytest.raises(DamagedAclRecord):
            state.apply(key, b"")
