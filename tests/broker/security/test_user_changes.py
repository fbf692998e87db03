"""What may be changed of users in one request, and what is told of them: as Apache Kafka 4.3.1 answers."""

import pytest
from fencepost.broker.security.credentials import (
    LONGEST_NAME,
    LONGEST_SALT_BYTES,
    LONGEST_SALTED_BYTES,
    Mechanism,
    ScramUsers,
    credential_from,
    salted_password,
)
from fencepost.broker.security.user_changes import decide_changes, describe, infos_of, refuse_duplicate
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.scram_users import AlterUserScramCredentialsRequest

TWICE = (92, "A user credential cannot be altered twice in the same request")
NO_CREDENTIAL = (91, "Attempt to delete a user credential that does not exist")
UNKNOWN_MECHANISM = (33, "Unknown SCRAM mechanism")
NO_NAME = (93, "Username must not be empty")
FEW, MANY = (93, "Too few iterations"), (93, "Too many iterations")
OK = (0, None)


def delete(name, mechanism=1):
    return AlterUserScramCredentialsRequest.Deletion(name=name, mechanism=mechanism)


def put(name, mechanism=1, iterations=4096, salt=b"salt", salted=None):
    salted = b"p" * (64 if mechanism == 2 else 32) if salted is None else salted
    return AlterUserScramCredentialsRequest.Upsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def alter(users, *asked):
    deletions = [each for each in asked if isinstance(each, AlterUserScramCredentialsRequest.Deletion)]
    upsertions = [each for each in asked if each not in deletions]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    deciding = decide_changes(users, request, most_users=5)
    while True:
        try:
            assert next(deciding) == 1
        except StopIteration as end:
            changes, results = end.value
            break
    for change in changes.values():
        users.apply(*change)
    return {each.user: (each.error_code, each.error_message) for each in results}


@pytest.fixture
def users():
    users = ScramUsers()
    assert alter(users, put("alice"), put("bob", 2, 5000)) == {"alice": OK, "bob": OK}
    return users


def test_a_credential_is_stored_by_an_upsertion_and_removed_by_a_deletion(users):
    salted = salted_password(Mechanism.SHA_256, b"secret", b"salt", 4096)
    assert alter(users, put("carol", salted=salted)) == {"carol": OK}
    assert users.find("carol", Mechanism.SHA_256) == credential_from(Mechanism.SHA_256, salted, b"salt", 4096)
    assert alter(users, delete("carol")) == {"carol": OK}
    assert "carol" not in users.names


@pytest.mark.parametrize(
    ("asked", "results"),
    [
        ([], {}),
        ([put("c", iterations=4095)], {"c": FEW}),
        ([put("c", iterations=0)], {"c": FEW}),
        ([put("c", iterations=-1)], {"c": FEW}),
        ([put("c", iterations=16_385)], {"c": MANY}),
        ([put("c", iterations=2**31 - 1)], {"c": MANY}),
        ([put("c", iterations=16_384)], {"c": OK}),
        ([put("c", 0)], {"c": UNKNOWN_MECHANISM}),
        ([put("c", 3)], {"c": UNKNOWN_MECHANISM}),
        ([put("c", -1)], {"c": UNKNOWN_MECHANISM}),
        ([put("c", 9, iterations=1)], {"c": UNKNOWN_MECHANISM}),
        ([delete("alice", 7)], {"alice": UNKNOWN_MECHANISM}),
        ([put("")], {"": NO_NAME}),
        ([delete("")], {"": NO_NAME}),
        ([put(""), put("")], {"": NO_NAME}),
        ([delete("nobody")], {"nobody": NO_CREDENTIAL}),
        ([delete("alice", 2)], {"alice": NO_CREDENTIAL}),
        ([put("d"), put("d")], {"d": TWICE}),
        ([put("d", 1), put("d", 2)], {"d": TWICE}),
        ([put("d"), put("d", iterations=1)], {"d": TWICE}),
        ([put("d", iterations=1), put("d")], {"d": FEW}),
        ([delete("alice"), put("alice")], {"alice": TWICE}),
        ([delete("alice"), delete("alice")], {"alice": TWICE}),
        ([delete("alice"), put("alice", iterations=1)], {"alice": TWICE}),
        ([delete("alice", 2), put("alice", 2)], {"alice": NO_CREDENTIAL}),
        ([delete("x", 2), delete("x", 2)], {"x": NO_CREDENTIAL}),
        ([delete("q"), put("p"), put("m", iterations=1), put("n")], {"q": NO_CREDENTIAL, "p": OK, "m": FEW, "n": OK}),
        ([put("ü,=x y")], {"ü,=x y": OK}),
    ],
)
def test_each_user_change_gets_the_same_error_as_from_kafka(users, asked, results):
    before = {name: list(users.of(name)) for name in users.names}
    assert alter(users, *asked) == results
    for name, result in results.items():
        if result != OK:
            assert list(users.of(name)) == before.get(name, []), "what is refused changes nothing"
        else:
            assert list(users.of(name))


@pytest.mark.parametrize(
    "asked",
    [
        put("c", salt=b"s" * (LONGEST_SALT_BYTES + 1)),
        put("c", salted=b""),
        put("c", 2, salted=b"p" * (LONGEST_SALTED_BYTES + 1)),
        put("c" * (LONGEST_NAME + 1)),
    ],
)
def test_an_unusable_credential_that_kafka_accepts_gets_unacceptable_credential(users, asked):
    ((code, text),) = alter(users, asked).values()
    assert code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert text
    assert asked.name not in users.names


def test_the_longest_salt_and_user_name_within_the_limits_are_accepted(users):
    asked = [put("c", salt=b"s" * LONGEST_SALT_BYTES), put("d", salt=b"s"), put("e" * LONGEST_NAME)]
    assert set(alter(users, *asked).values()) == {OK}


@pytest.mark.parametrize("mechanism", list(Mechanism))
@pytest.mark.parametrize("salt", [b"", b"s"])
@pytest.mark.parametrize("size", [1, 31, 32, 64, LONGEST_SALTED_BYTES])
def test_an_empty_salt_and_any_size_of_a_salted_password_are_accepted_as_kafka_does(users, mechanism, salt, size):
    salted = b"p" * size
    assert alter(users, put("c", int(mechanism), salt=salt, salted=salted)) == {"c": OK}
    assert users.find("c", mechanism) == credential_from(mechanism, salted, salt, 4096)
    assert alter(users, delete("c", int(mechanism))) == {"c": OK}
    assert users.find_or_decoy("c", mechanism).salt is not None


def test_no_repr_of_a_request_shows_the_password():
    assert repr(put("alice", salt=b"12345", salted=b"secret")).endswith("salt=<5 bytes>, salted_password=<6 bytes>)")


# ---- descriptions ------------------------------------------------------------------------------------------------


def test_a_user_is_described_with_mechanisms_and_iterations(users):
    alter(users, put("bob", 1, 6000))
    assert infos_of(users, "bob") == ((1, 6000), (2, 5000))
    reported = describe("bob", infos_of(users, "bob"))
    assert (reported.user, reported.error_code, reported.error_message) == ("bob", 0, "")
    assert [(one.mechanism, one.iterations) for one in reported.credential_infos] == [(1, 6000), (2, 5000)]


def test_describing_an_unknown_user_or_one_user_twice_gets_kafkas_errors(users):
    unknown, twice = describe("nobody", infos_of(users, "nobody")), refuse_duplicate("bob")
    text = "Attempt to describe a user credential that does not exist: nobody"
    assert (unknown.error_code, unknown.error_message, unknown.credential_infos) == (
        ErrorCode.RESOURCE_NOT_FOUND,
        text,
        [],
    )
    text = "Cannot describe SCRAM credentials for the same user twice in a single request: bob"
    assert (twice.error_code, twice.error_message, twice.credential_infos) == (ErrorCode.DUPLICATE_RESOURCE, text, [])


def test_new_users_beyond_max_users_get_policy_violation(users):
    full = (ErrorCode.POLICY_VIOLATION, "there may be 5 users (max.users)")
    assert alter(users, put("c"), put("d"), put("e"), put("f"), put("alice", 2)) == {
        **dict.fromkeys("cde", OK),
        "f": full,
        "alice": OK,
    }
    assert alter(users, put("f"))["f"][0] == ErrorCode.POLICY_VIOLATION
    assert alter(users, delete("c"), put("alice")) == {"c": OK, "alice": OK}
    assert alter(users, put("f"), put("f"), put("g")) == {"f": TWICE, "g": OK}
