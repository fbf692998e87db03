"""Random requests that mostly make sense: existing names, ids in use, valid batches; then some are corrupted.

The rule: what is drawn comes from the seeded random alone, so one seed is one attack.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from fencepost.protocol.apis import APIS, Api, encode_request
from fencepost.protocol.schema import Array, Blob, Fixed, Nested, Text, schema_of
from fuzz.mutating import INTERESTING, mutated
from fuzz.records import some_batches
from fuzz.security import scram_dialogs
from fuzz.state import TARGETS as STATE
from fuzz.target import several

NAMES = ["t", "u", "compacted", "new", "g", "x", "y", "", "*"]
ODD_NAMES = [
    ".",
    "..",
    "a/b",
    "nul\0",
    "ü主",
    "n" * 249,
    "n" * 250,
    "n" * 4000,
    "__consumer_offsets",
    "__transaction_state",
]
TEXTS: dict[str, list[str]] = {
    "principal": ["User:ANONYMOUS", "User:a", "no-colon"],
    "host": ["*", "127.0.0.1"],
    "mechanism": ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "OTHER"],
    "protocol_type": ["consumer", "connect", ""],
    "entity_type": ["user", "client-id", "ip"],
    "key": ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate"],
}
CONFIGS = ["cleanup.policy", "retention.ms", "max.message.bytes", "compression.type", "message.timestamp.type"]
VALUES = ["compact", "delete", "-1", "5", "1048588", "zstd", "LogAppendTime", "none of these"]
NUMBERS = [-2, -1, 0, 1, 2, 3, 5, 100]
MILLISECONDS = [-1, 0, 1, 50, 6_000, 60_000]
RATES = [1e9, 1e12, -1.0, float("nan"), float("inf")]


class Chance:
    """Yield length-prefixed frames, without end."""

    def __init__(
        self,
        seed: int,
        topic_ids: Sequence[bytes] = (),
        producer_ids: Sequence[int] = (),
        apis: Sequence[Api] = tuple(APIS.values()),
    ) -> None:
        """apis: which APIs are requested; one that is listed several times is drawn more often."""
        self.random = Random(seed)
        self._apis = apis
        self._topic_ids = [*topic_ids, bytes(16), b"\7" * 16]
        self._producer_ids = [*producer_ids, -1, 0, 2**63 - 1]
        self._batches = list(some_batches())
        self._blobs = [b"", b"\0" * 8, *(seed for target in STATE for seed in target.seeds())]
        self._blobs += [part for dialog in scram_dialogs() for part in several(dialog)]
        self._blobs += [b"\0alice\0alice-pw", b"\0alice\0wrong", b"\0nobody\0x"]

    def frames(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            yield self.frame()

    def frame(self) -> bytes:
        random = self.random
        api = random.choice(self._apis)
        version = random.randint(api.min, api.max) if random.random() < 0.9 else random.choice(list(api.declared))
        message = self._message(api.request, version)
        client_id = random.choice(["a", "", "n" * 300])
        whole = b"".join(encode_request(api, version, random.randrange(1 << 31), client_id, message))
        drawn = random.random()
        if drawn < 0.88:
            return whole
        if drawn < 0.97:
            body = mutated(random, [whole[10:]], 100_000)
            whole = whole[:10] + body
        elif drawn < 0.995:
            whole = whole[:4] + mutated(random, [whole[4:]], 100_000)
        else:  # a wrong length
            return random.choice(INTERESTING)[:4].ljust(4, b"\0") + whole[4:]
        return (len(whole) - 4).to_bytes(4, "big") + whole[4:]

    def _message(self, cls: type, version: int) -> Any:
        values = {}
        for f in schema_of(cls).fields:
            if version not in f.versions or (not f.required and self.random.random() < 0.3):
                continue
            if version in f.nullable and self.random.random() < 0.2:
                values[f.name] = None
            else:
                values[f.name] = self._value(f.kind, f.name, version)
        return cls(**values)

    def _value(self, kind: Any, name: str, version: int) -> Any:
        random = self.random
        match kind:
            case Fixed(format="?"):
                return random.random() < 0.5
            case Fixed(format="16s"):
                return random.choice(self._topic_ids)
            case Fixed(format="d"):
                return random.choice(RATES)
            case Fixed():
                return self._number(kind, name)
            case Text():
                return self._text(name)
            case Blob(of="slices"):
                return [memoryview(self._records())]
            case Blob(of="view"):
                return memoryview(self._records())
            case Blob():
                return random.choice(self._blobs)
            case Array():
                count = random.choice((0, 1, 1, 1, 2, 3, 3, 30))
                return [self._value(kind.item, name, version) for _ in range(count if self._has_room() else 1)]
            case Nested():
                return self._message(kind.cls, version)
        raise AssertionError(kind)

    def _has_room(self) -> bool:
        """Choose the length of an array; nested arrays get shorter, so that the whole stays small."""
        return self.random.random() < 0.8

    def _number(self, kind: Fixed, name: str) -> int:
        random, bits = self.random, 8 * kind.size_bytes
        if name == "producer_id":
            return random.choice(self._producer_ids)
        if random.random() < 0.05:
            return random.choice((-(1 << bits - 1), (1 << bits - 1) - 1))
        number = random.choice(MILLISECONDS if name.endswith("_ms") else NUMBERS)
        return number if -(1 << bits - 1) <= number < 1 << bits - 1 else 0

    def _text(self, name: str) -> str:
        random = self.random
        if random.random() < 0.1:
            return random.choice(ODD_NAMES)
        for part, texts in TEXTS.items():
            if part in name:
                return random.choice(texts)
        if name in ("config_names", "configuration_keys", "value"):
            return random.choice(CONFIGS + VALUES)
        return random.choice(NAMES + CONFIGS[:1])

    def _records(self) -> bytes:
        random = self.random
        if random.random() < 0.7:
            return random.choice(self._batches)
        return mutated(random, self._batches, 100_000)
