"""Our codecs against two others, byte for byte: every message in every version that is declared.

The long variant takes FENCEPOST_EXAMPLES (a number for each message) and FENCEPOST_SEED from the environment.
"""

import os
import random
from collections.abc import Callable, Generator
from typing import Any

import pytest
from every_message import messages_of, of_every_message
from fencepost.protocol.apis import API_VERSIONS, APIS
from fencepost.protocol.compile import decoder, decoder_in_steps, encoder, encoder_in_steps
from fencepost.protocol.encoding import Rows
from fencepost.protocol.messages.fetch import FetchResponse
from fencepost.protocol.schema import schema_of
from hypothesis import HealthCheck, Phase, given, seed, settings
from wire_oracles import KafkaPython, Kio
from wire_values import messages, plain

KNOWN = [api for api in APIS.values() if api.key < 20_000]
"""Ours are in no other library: tests/protocol/test_ledger_messages.py has their bytes."""
KIO_ALONE = {68, 69, 76, 77, 78, 79, 90, 91, 92}
"""kafka-python speaks neither the newer protocol of consumer groups nor that of share groups."""


def result_of(steps: Generator[int, None, Any]) -> Any:
    """Run the steps to their end, assert that none yields a negative count, and return their result."""
    results = []

    def run() -> Generator[int, None, None]:
        results.append((yield from steps))

    assert min(run()) >= 0
    return results[0]


def agreement(cls: type, version: int) -> Callable[[Any], None]:
    """Return a function that checks a message: our codecs and those of kio and kafka-python agree on bytes and
    value.
    """
    encode, decode = encoder(cls, version), decoder(cls, version)
    encode_in_steps, decode_in_steps = encoder_in_steps(cls, version), decoder_in_steps(cls, version)
    kio, kafka_python = Kio(cls, version), KafkaPython(cls, version)
    assert kafka_python.knows is (schema_of(cls).api not in KIO_ALONE)

    def check(message: Any) -> None:
        data = b"".join(encode(message))
        value = plain(message)
        for readable in (data, memoryview(data)):
            read, end = decode(readable, 0)
            assert (plain(read), end) == (value, len(data))
        assert b"".join(result_of(encode_in_steps(message))) == data
        read, end = result_of(decode_in_steps(memoryview(data), 0))
        assert (plain(read), end) == (value, len(data))
        assert kio.encode(message) == data
        read, end = kio.decode(data)
        assert (plain(read), end) == (value, len(data))
        if not kafka_python.knows:
            return
        assert kafka_python.encode(message) == data
        if cls is not APIS[API_VERSIONS].response or not message.error_code:  # kafka-python reads an error as version 0
            assert plain(kafka_python.decode(data)) == value

    return check


def run(cls: type, version: int, examples: int, number: int) -> None:
    check = agreement(cls, version)
    bounded = settings(
        max_examples=examples,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    bounded(seed(number)(given(messages(cls, version, Kio(cls, version).dates))(check)))()


@pytest.mark.slow
@of_every_message(KNOWN)
def test_messages_are_encoded_and_decoded_like_kio_and_kafka_python(cls: type, version: int) -> None:
    run(cls, version, 2, 1)


@pytest.mark.long
@of_every_message(KNOWN)
def test_random_messages_are_encoded_and_decoded_like_kio_and_kafka_python(cls: type, version: int) -> None:
    number = int(os.environ.get("FENCEPOST_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"FENCEPOST_SEED={number}")
    run(cls, version, int(os.environ.get("FENCEPOST_EXAMPLES", "500")), number)


def test_all_506_declared_message_versions_are_known_to_kio_or_kafka_python() -> None:
    assert sum(len(messages_of(api)) for api in KNOWN) == 506


@pytest.mark.parametrize("version", [4, 11, 12, 16])
def test_array_items_of_fixed_size_fields_can_be_given_as_tuples(version: int) -> None:
    part = FetchResponse.Topic.Partition
    entries = [part.AbortedTransaction(producer_id=n << 40, first_offset=-n) for n in range(3)]
    written = []
    for aborted in (entries, Rows((each.producer_id, each.first_offset) for each in entries), Rows()):
        answer = part(partition_index=1, aborted_transactions=aborted, records=[])
        topic = FetchResponse.Topic(topic="t", partitions=[answer])
        written.append(b"".join(encoder(FetchResponse, version)(FetchResponse(responses=[topic]))))
    assert written[0] == written[1]
    # Each entry has two int64; in versions of the flexible encoding a byte for its tagged fields, too.
    assert len(written[0]) == len(written[2]) + 3 * (17 if version >= 12 else 16)
