"""Makes salts and iteration counts for SCRAM logins of unknown users that look like those of real users. Pure.

The rules: a name always gets the same decoy. Decoys of each kind (iterations, alphabet and length of the salt) are as
frequent among names as credentials of this kind are among users. A user that is added or removed changes the decoys of
as few names as possible (weighted rendezvous hashing). Nobody without the secret can compute a decoy.

Sources: RFC 5802, section 9; Kafka's ScramFormatter.secureRandomString; Schindelhauer and Schomaker, "Weighted
distributed hash tables" (2005).
"""

import hashlib
import hmac
import math
import string
from base64 import b64decode, b64encode
from collections import Counter
from enum import IntEnum
from heapq import nsmallest
from typing import NamedTuple

MAX_KINDS = 64  # that decoys are chosen among, the commonest: each costs a hash in every login
SALT_BYTES = 24
KAFKA_BITS = 130  # of the number whose text in base 36 is a salt of Kafka's own tools
SHORTEST_KAFKA_SALT, LONGEST_KAFKA_SALT = 20, 26  # a shorter one would be a rare number
DRAWS = 32  # at most, until a salt fits in no smaller alphabet than it should; one or two nearly always


class Alphabet(IntEnum):
    """The set of characters that a salt consists of. A salt belongs to the first alphabet that contains all of it."""

    DIGITS = 0
    HEX = 1
    KAFKA = 2  # a random number in base 36, without zeros before it: what Kafka's admin client makes
    BASE_36 = 3
    LETTERS_AND_DIGITS = 4
    BASE_64 = 5
    PRINTABLE = 6
    BYTES = 7


_CHARACTERS = {
    Alphabet.DIGITS: string.digits,
    Alphabet.HEX: "0123456789abcdef",
    Alphabet.BASE_36: string.digits + string.ascii_lowercase,
    Alphabet.LETTERS_AND_DIGITS: string.digits + string.ascii_letters,
    Alphabet.PRINTABLE: "".join(map(chr, range(0x20, 0x7F))),
}
_BASE_36 = _CHARACTERS[Alphabet.BASE_36].encode()


class Kind(NamedTuple):
    """The kind of a credential: its properties that a client sees in a SCRAM login, which are all except the random
    bytes of the salt.

    length: of the salt, for BASE_64 after decoding; 0 if it is random.
    """

    iterations: int
    alphabet: Alphabet
    length: int


def kind_of(salt: bytes, iterations: int) -> Kind:
    """Return the kind (iterations, alphabet and length) of a credential with this salt and iteration count."""
    alphabet = next(each for each in Alphabet if _fits(salt, each))
    if alphabet is Alphabet.KAFKA:
        return Kind(iterations, alphabet, 0)
    return Kind(iterations, alphabet, len(b64decode(salt) if alphabet is Alphabet.BASE_64 else salt))


def _fits(salt: bytes, alphabet: Alphabet) -> bool:
    """Return whether the salt could have been made with this alphabet."""
    if alphabet is Alphabet.BYTES:
        return True
    if alphabet is Alphabet.KAFKA:
        in_range = SHORTEST_KAFKA_SALT <= len(salt) <= LONGEST_KAFKA_SALT and not salt.startswith(b"0")
        return in_range and _fits(salt, Alphabet.BASE_36) and int(salt, 36) < 1 << KAFKA_BITS
    if alphabet is Alphabet.BASE_64:
        try:
            return b64encode(b64decode(salt, validate=True)) == salt
        except ValueError:
            return False
    return not salt.translate(None, _CHARACTERS[alphabet].encode())


class Kinds:
    """How many credentials there are of each kind (iterations, alphabet and length), for one mechanism.

    usual: the kind of decoys while there are no credentials.
    """

    def __init__(self, usual: Kind) -> None:
        self._usual = usual
        self._counts: Counter[Kind] = Counter()
        self._commonest: list[tuple[Kind, int]] | None = None

    def add(self, kind: Kind, count: int) -> None:
        """Add `count` users whose credentials are of this kind; a negative count removes them."""
        self._counts[kind] += count
        if not self._counts[kind]:
            del self._counts[kind]
        self._commonest = None

    def decoy(self, seed: bytes) -> tuple[bytes, int]:
        """Return (salt, iterations) for an unknown user. seed: made from the name, and unknown to clients."""
        kind = self._choose(seed)
        return _salt(kind, hmac.digest(seed, b"salt %d %d %d" % kind, "sha256")), kind.iterations

    def _choose(self, seed: bytes) -> Kind:
        """Return the kind of credential that an unknown user pretends to have, chosen by the seed. Each kind is as
        likely as it is frequent among users.

        When the counts change, the choice for a seed changes only to a kind that has more users now, or away from one
        that has fewer.
        """
        if self._commonest is None:
            counts = self._counts.items()
            self._commonest = nsmallest(MAX_KINDS, counts, key=lambda each: (-each[1], each[0])) or [(self._usual, 1)]
        if len(self._commonest) == 1:
            return self._commonest[0][0]
        return min(self._commonest, key=lambda each: _distance(seed, *each))[0]


def _distance(seed: bytes, kind: Kind, weight: int) -> float:
    """Return an exponentially distributed number with rate `weight`, derived from the seed and the kind. _choose()
    takes the kind with the smallest number, so a kind is chosen with a probability proportional to its weight.
    """
    drawn = int.from_bytes(hmac.digest(seed, b"kind %d %d %d" % kind, "sha256")[:7])
    return -math.log((drawn + 1) / (1 << 56)) / weight


def _salt(kind: Kind, seed: bytes) -> bytes:
    """Return a salt of this kind. One that also belongs to an earlier alphabet is drawn again, at most DRAWS times."""
    salt = b""
    for draw in range(DRAWS):
        salt = _draw(kind, seed + bytes([draw]))
        if kind_of(salt, kind.iterations) == kind:
            break
    return salt


def _draw(kind: Kind, seed: bytes) -> bytes:
    """Return one salt with the kind's alphabet and length, derived from the seed."""
    random = hashlib.shake_256(seed).digest(2 * max(kind.length, SALT_BYTES))
    if kind.alphabet is Alphabet.BYTES:
        return random[: kind.length]
    if kind.alphabet is Alphabet.KAFKA:
        return _in_base_36(int.from_bytes(random) >> (8 * len(random) - KAFKA_BITS))
    if kind.alphabet is Alphabet.BASE_64:
        return b64encode(random[: kind.length])
    characters = _CHARACTERS[kind.alphabet].encode()
    pairs = zip(random[::2], random[1::2], strict=True)
    drawn = bytes(characters[(high << 8 | low) * len(characters) >> 16] for high, low in pairs)
    return drawn[: kind.length]


def _in_base_36(number: int) -> bytes:
    """Encode a number in base 36, without leading zeros."""
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(_BASE_36[digit])
    return bytes(reversed(digits))
