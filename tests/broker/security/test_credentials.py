"""What is kept of passwords, what proves that one is known, and the table of users with its records."""

import base64

import msgpack
import pytest
from fencepost.broker.security.credentials import (
    LEAST_ITERATIONS,
    MAX_ITERATIONS,
    DamagedUserRecord,
    Mechanism,
    NewerUserRecord,
    ScramCredential,
    ScramUsers,
    credential_from,
    credential_removed,
    credential_set,
    salted_password,
    secret_set,
)
from hypothesis import given
from hypothesis import strategies as st

SHA_256, SHA_512 = Mechanism
PASSWORD = "pencil"

# The example of RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
AUTH_MESSAGE = (f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={NONCE}").encode()
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def made(mechanism=SHA_256, password=PASSWORD, salt=SALT, iterations=4096):
    salted = salted_password(mechanism, password.encode(), salt, iterations)
    return credential_from(mechanism, salted, salt, iterations)


USERS = {"alice": made(), "bob": made(SHA_512, "b"), "ü,=:*": made(SHA_512, salt=b"x", iterations=MAX_ITERATIONS)}


def table(users=USERS, secret=b"s" * 32):
    made = ScramUsers()
    made.apply(*secret_set(secret))
    for name, credential in users.items():
        made.apply(*credential_set(name, credential))
    return made


# ---- one credential ----------------------------------------------------------------------------------------------


def test_the_example_of_rfc_7677_gives_its_proof_and_signature():
    credential = made()
    assert credential.proves(AUTH_MESSAGE, PROOF)
    assert credential.signature(AUTH_MESSAGE) == SIGNATURE


def test_a_sha_512_credential_is_the_same_as_the_one_scramp_makes():
    from scramp import ScramMechanism

    credential = made(SHA_512)
    auth = ScramMechanism("SCRAM-SHA-512").make_auth_info(PASSWORD, iteration_count=4096, salt=SALT)
    assert auth == (SALT, credential.stored_key, credential.server_key, 4096)


@pytest.mark.parametrize("byte", range(32))
def test_a_scram_proof_with_any_bit_changed_is_refused(byte):
    credential = made()
    for bit in range(8):
        wrong = bytearray(PROOF)
        wrong[byte] ^= 1 << bit
        assert not credential.proves(AUTH_MESSAGE, bytes(wrong))


@pytest.mark.parametrize("proof", [b"", PROOF[:-1], PROOF + b"\0", PROOF * 2, bytes(32), bytes(64)])
def test_a_scram_proof_of_wrong_size_or_of_zeros_is_refused(proof):
    assert not made().proves(AUTH_MESSAGE, proof)


@pytest.mark.parametrize("field", ["stored_key", "server_key"])
def test_stored_keys_are_not_accepted_as_a_proof_or_password(field):
    credential = made()
    assert not credential.proves(AUTH_MESSAGE, getattr(credential, field))
    assert not credential.is_made_from(getattr(credential, field))


def test_a_scram_credential_of_either_mechanism_accepts_only_its_password():
    for mechanism in Mechanism:
        assert made(mechanism).is_made_from(PASSWORD.encode())
        assert not made(mechanism).is_made_from(b"Pencil")
        assert not made(mechanism).is_made_from(b"")


def test_no_repr_shows_a_stored_credential():
    credential, users = made(), table()
    assert repr(credential) == str(credential) == "ScramCredential(SCRAM-SHA-256, 4096 iterations)"
    assert repr(users) == "ScramUsers(3 users)"
    for secret in (credential.salt, credential.stored_key, credential.server_key):
        assert repr(secret) not in repr([credential, users, {"a": credential}])


# ---- the table ---------------------------------------------------------------------------------------------------


def test_a_credential_is_found_by_user_name_and_mechanism():
    users = table()
    assert list(users.names) == list(USERS)
    for name, credential in USERS.items():
        assert users.find(name, credential.mechanism) == credential
        assert list(users.of(name)) == [credential]
        assert users.find_or_decoy(name, credential.mechanism) == users.any_or_decoy(name) == credential
    assert users.find("alice", SHA_512) is users.find("Alice", SHA_256) is users.find("", SHA_256) is None


def test_a_user_exists_until_the_last_of_its_mechanisms_is_removed():
    users = table()
    users.apply(*credential_set("alice", made(SHA_512)))
    assert {each.mechanism for each in users.of("alice")} == {SHA_256, SHA_512}
    users.apply(*credential_removed("alice", SHA_256))
    assert users.any_or_decoy("alice").mechanism is SHA_512
    users.apply(*credential_removed("alice", SHA_512))
    assert "alice" not in users.names
    assert not list(users.of("alice"))


def test_a_new_credential_replaces_the_old_one():
    users = table()
    users.apply(*credential_set("alice", made(password="new")))
    assert users.any_or_decoy("alice").is_made_from(b"new")
    assert len(list(users.of("alice"))) == 1


def test_removing_an_unknown_credential_changes_nothing():
    users = table()
    users.apply(*credential_removed("nobody", SHA_256))
    assert list(users.names) == list(USERS)


# ---- decoys ------------------------------------------------------------------------------------------------------


def test_decoy_credentials_are_stable_over_restarts_and_differ_by_name():
    """A decoy is the credential with which the broker answers a login of an unknown user."""
    decoy = table().find_or_decoy("nobody", SHA_256)
    reordered = table(dict(reversed(USERS.items())))
    assert decoy == table().find_or_decoy("nobody", SHA_256) == reordered.find_or_decoy("nobody", SHA_256)
    others = [table().find_or_decoy("nobody2", SHA_256), table().find_or_decoy("nobody", SHA_512)]
    others.append(table(secret=b"t" * 32).find_or_decoy("nobody", SHA_256))
    assert len({decoy.salt, *(each.salt for each in others)}) == 4


@pytest.mark.parametrize("mechanism", Mechanism)
def test_without_users_decoys_look_like_credentials_made_by_the_sdk(mechanism):
    """A decoy is the credential with which the broker answers a login of an unknown user."""
    decoy = table({}).find_or_decoy("nobody", mechanism)
    assert (decoy.mechanism, decoy.iterations, len(decoy.salt)) == (mechanism, LEAST_ITERATIONS, 24)
    real = made(mechanism)
    assert list(map(len, decoy[3:])) == list(map(len, real[3:]))


def test_decoys_have_the_iterations_of_users_with_the_same_mechanism():
    """A decoy is the credential with which the broker answers a login of an unknown user."""
    users = table({f"u{n}": made(iterations=5000) for n in range(3)})
    assert users.find_or_decoy("nobody", SHA_256).iterations == 5000
    assert users.find_or_decoy("nobody", SHA_512).iterations == LEAST_ITERATIONS
    for name in ("u0", "u1", "u2"):
        users.apply(*credential_set(name, made(iterations=6000)))
    assert users.find_or_decoy("nobody", SHA_256).iterations == 6000
    for name in ("u0", "u1", "u2"):
        users.apply(*credential_removed(name, SHA_256))
    assert users.find_or_decoy("nobody", SHA_256) == table({}).find_or_decoy("nobody", SHA_256)


def test_decoys_of_unknown_users_use_each_mechanism_as_often_as_known_users():
    """A check with SHA-512 and one with SHA-256 take different times, which could tell who is a user."""
    users = table({f"u{n}": made(SHA_512 if n else SHA_256) for n in range(4)})
    users.apply(*credential_set("u0", made(SHA_512)))  # a plain password of u0 is still checked by SHA-256
    chosen = [users.any_or_decoy(f"nobody{n}").mechanism for n in range(1000)]
    assert 700 < chosen.count(SHA_512) < 800, "three of four"
    users.apply(*credential_removed("u0", SHA_256))
    assert {users.any_or_decoy(f"nobody{n}").mechanism for n in range(100)} == {SHA_512}
    found = {table().any_or_decoy(f"nobody{n}").iterations for n in range(100)}
    assert found == {4096, MAX_ITERATIONS}, "as known users have them"


# ---- records -----------------------------------------------------------------------------------------------------


def test_the_credential_record_contains_neither_password_nor_salted_password():
    key, value = credential_set("alice", made())
    written = key + value
    assert PASSWORD.encode() not in written
    assert salted_password(SHA_256, PASSWORD.encode(), SALT, 4096) not in written


KEY, VALUE = credential_set("alice", made())
FIELDS = msgpack.unpackb(VALUE)


def with_field(number, value):
    return msgpack.packb([*FIELDS[:number], value, *FIELDS[number + 1 :]])


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xc1",
        VALUE[:-1],
        VALUE + b"\0",
        msgpack.packb({"a": 1}),
        msgpack.packb(FIELDS[:-1]),
        msgpack.packb([*FIELDS, 1]),
        with_field(0, -1),
        with_field(0, "0"),
        with_field(1, "salt"),
        with_field(2, LEAST_ITERATIONS - 1),
        with_field(2, MAX_ITERATIONS + 1),
        with_field(2, True),
        with_field(3, FIELDS[3][:-1]),
        with_field(4, FIELDS[4] + b"\0"),
        with_field(3, None),
    ],
)
def test_a_damaged_credential_record_raises_an_error_without_its_content(value):
    users = table()
    with pytest.raises(DamagedUserRecord) as refused:
        users.apply(KEY, value)
    assert repr(FIELDS[3]) not in str(refused.value)
    assert users.find("alice", SHA_256) == USERS["alice"]


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\xc1",
        KEY + b"\0",
        msgpack.packb([]),
        msgpack.packb(["scram user"]),
        msgpack.packb(["scram user", "a", 3]),
        msgpack.packb(["scram user", b"a", 1]),
    ],
)
def test_a_credential_record_with_a_damaged_key_raises_damaged_user_record(key):
    with pytest.raises(DamagedUserRecord):
        table().apply(key, VALUE)


def test_a_user_record_of_a_later_version_raises_newer_user_record():
    for record in ((KEY, with_field(0, 1)), (msgpack.packb(["scram token", "a"]), VALUE)):
        with pytest.raises(NewerUserRecord):
            table().apply(*record)


def test_a_tombstone_for_the_decoy_secret_raises_damaged_user_record():
    """The decoy secret determines the credentials with which logins of unknown users are answered."""
    with pytest.raises(DamagedUserRecord):
        table().apply(secret_set(b"s")[0], None)


@given(st.binary(max_size=80), st.none() | st.binary(max_size=80))
def test_arbitrary_bytes_as_a_user_record_are_applied_or_refused(key, value):
    try:
        table().apply(key, value)
    except (DamagedUserRecord, NewerUserRecord):
        pass


@given(st.text(max_size=20), st.sampled_from(Mechanism), st.binary(max_size=40), st.integers(4096, 16_384))
def test_a_credential_reads_back_as_it_was_written(name, mechanism, salt, iterations):
    size = mechanism.bits // 8
    credential = ScramCredential(mechanism, salt, iterations, b"k" * size, b"v" * size)
    users = table()
    users.apply(*credential_set(name, credential))
    assert users.find(name, mechanism) == credential
