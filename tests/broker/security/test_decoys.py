"""Decoys: a name that nobody has is answered like those that users have, whichever client made the users."""

import base64
import random
import string
from collections import Counter

import pytest
from fencepost.broker.security.credentials import (
    Mechanism,
    ScramCredential,
    ScramUsers,
    credential_removed,
    credential_set,
    secret_set,
)
from fencepost.broker.security.decoys import MAX_KINDS, Alphabet, Kind, kind_of
from fencepost.broker.security.sasl import ScramExchange, fresh_nonce
from hypothesis import given
from hypothesis import strategies as st
from scram_client import ScramClient

CHANCE = random.Random(1)


def text(characters, length):
    return "".join(CHANCE.choices(characters, k=length)).encode()


def in_base_36(number):
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = (string.digits + string.ascii_lowercase)[digit] + digits
    return digits.encode()


CLIENTS = {  # how each makes a salt, and the iterations that it takes
    "the SDK": (lambda: CHANCE.randbytes(24), 4096),
    "kafka-configs.sh": (lambda: in_base_36(CHANCE.getrandbits(130)), 4096),
    "confluent-kafka": (lambda: CHANCE.randbytes(64), 10_000),
    "a script with hex": (lambda: CHANCE.randbytes(16).hex().encode(), 8192),
    "a script with base64": (lambda: base64.b64encode(CHANCE.randbytes(16)), 8192),
    "a script with letters": (lambda: text(string.ascii_letters + string.digits, 20), 15_000),
    "a script with digits": (lambda: text(string.digits, 12), 5000),
    "a script with small letters": (lambda: text(string.digits + string.ascii_lowercase, 40), 5000),
    "a script with all signs": (lambda: text("".join(map(chr, range(32, 127))), 30), 5000),
    "a short salt": (lambda: CHANCE.randbytes(1), 4096),
    "a long salt": (lambda: CHANCE.randbytes(1024), 16_384),
}


def users_of(*clients, each=40):
    users = ScramUsers()
    users.apply(*secret_set(b"s" * 32))
    for client in clients:
        salt, iterations = CLIENTS[client]
        for number in range(each):
            add(users, f"{client} {number}", salt(), iterations)
    return users


def add(users, name, salt, iterations, mechanism=Mechanism.SHA_256):
    size = mechanism.bits // 8
    users.apply(*credential_set(name, ScramCredential(mechanism, salt, iterations, b"k" * size, b"v" * size)))


def answered(users, name):
    """Return what a client that names a user learns: the salt and the iterations."""
    exchange = ScramExchange(users, Mechanism.SHA_256, fresh_nonce(b"n" * 24))
    fields = dict(
        part.split(b"=", 1) for part in exchange.receive(ScramClient(name, "").first(), 0).message.split(b",")
    )
    return base64.b64decode(fields[b"s"]), int(fields[b"i"])


NOBODY = [f"nobody{number}" for number in range(400)]


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_decoys_of_unknown_names_look_like_users_made_by_known_clients(client):
    """A decoy is the credential with which the broker answers a login of an unknown user."""
    users = users_of(client)
    real = [answered(users, name) for name in users.names]
    decoys = [answered(users, name) for name in NOBODY]
    assert {iterations for _, iterations in decoys} == {CLIENTS[client][1]}
    assert {kind_of(*each) for each in decoys} <= {kind_of(*each) for each in real}
    drawn_from = set().union(*(CLIENTS[client][0]() for _ in range(2000)))
    assert set().union(*(salt for salt, _ in decoys)) <= drawn_from


@pytest.mark.slow
def test_decoys_of_users_made_by_kafkas_tools_have_salts_of_130_bits_in_base_36():
    decoys = [answered(users_of("kafka-configs.sh"), name)[0] for name in NOBODY]
    assert max(int(salt, 36) for salt in decoys) < 1 << 130
    assert {len(salt) for salt in decoys} >= {25, 26}
    assert {salt[:1] for salt in decoys if len(salt) == 26} == {b"1"}


def test_decoys_have_the_same_mix_of_salt_alphabets_as_the_users():
    """A decoy is the credential with which the broker answers a login of an unknown user."""
    users = users_of("the SDK", "confluent-kafka", each=10)
    for number in range(20):
        add(users, f"k{number}", CLIENTS["kafka-configs.sh"][0](), 4096)
    found = Counter(len(answered(users, name)[0]) for name in NOBODY)
    assert 70 < found[24] < 140  # of 400; each run gives the same: it follows from the secret and the names
    assert 70 < found[64] < 140
    assert 150 < found[25] + found[26] < 250  # half of the users, as the other two are a quarter each


@pytest.mark.slow
def test_adding_or_removing_a_user_changes_few_decoys():
    """A decoy is the credential with which the broker answers a login of an unknown user. One more user changes fewer
    than 30 of 400 decoys, and its removal changes them back.
    """
    users = users_of("the SDK", "confluent-kafka", each=20)
    before = {name: answered(users, name) for name in NOBODY}
    add(users, "one more", CLIENTS["kafka-configs.sh"][0](), 4096)
    after = {name: answered(users, name) for name in NOBODY}
    changed = [name for name in NOBODY if after[name] != before[name]]
    assert 0 < len(changed) < 30
    assert {kind_of(*after[name]).alphabet for name in changed} == {Alphabet.KAFKA}
    users.apply(*credential_removed("one more", Mechanism.SHA_256))
    assert {name: answered(users, name) for name in NOBODY} == before


@pytest.mark.slow
def test_decoys_imitate_a_limited_number_of_kinds_whatever_the_order_of_users():
    """A decoy is the credential with which the broker answers a login of an unknown user. Decoys have the iterations
    and the form of salt of at most MAX_KINDS kinds of users' credentials, which bounds the work for one name.
    """
    users, reordered = ScramUsers(), ScramUsers()
    made = [(f"u{number}", bytes(range(128, 140)), 4096 + number) for number in range(3 * MAX_KINDS)]
    for each in made:
        add(users, *each)
    for each in reversed(made):
        add(reordered, *each)
    found = {name: answered(users, name) for name in NOBODY}
    assert found == {name: answered(reordered, name) for name in NOBODY}
    assert len({iterations for _, iterations in found.values()}) <= MAX_KINDS


@given(st.binary(max_size=60), st.integers(4096, 16_384))
def test_a_decoy_imitates_iterations_and_length_of_any_salt_and_stays_the_same(salt, iterations):
    """A decoy is the credential with which the broker answers a login of an unknown user."""
    users = ScramUsers()
    add(users, "a", salt, iterations)
    decoy = users.find_or_decoy("b", Mechanism.SHA_256)
    assert decoy.iterations == iterations
    kind = kind_of(salt, iterations)
    assert kind.alphabet is Alphabet.KAFKA or len(decoy.salt) == len(salt)
    assert users.find_or_decoy("b", Mechanism.SHA_256) == decoy


def test_a_salts_kind_names_the_smallest_alphabet_that_has_all_its_characters():
    found = {
        b"0123": Alphabet.DIGITS,
        b"00ff": Alphabet.HEX,
        b"1" + b"z" * 24: Alphabet.KAFKA,
        b"z" * 26: Alphabet.BASE_36,
        b"0" + b"z" * 24: Alphabet.BASE_36,
        b"aZ9": Alphabet.LETTERS_AND_DIGITS,
        b"aZ==": Alphabet.PRINTABLE,  # no encoder ends so
        b"aQ==": Alphabet.BASE_64,
        b"a b": Alphabet.PRINTABLE,
        b"\xff": Alphabet.BYTES,
    }
    assert {salt: kind_of(salt, 4096).alphabet for salt in found} == found
    assert kind_of(b"aQ==", 5000) == Kind(5000, Alphabet.BASE_64, 1)
