"""Runs every target on its seeds, on inputs that failed earlier, and on random mutations of both.

`make fuzz MINUTES=60` goes on from here, guided by coverage.
"""

from collections import deque
from itertools import chain
from random import Random

import pytest
from fencepost.protocol import compile as compiling
from fencepost.protocol.records import varint
from fuzz import loop, messages
from fuzz.found import FOUND
from fuzz.loop import Failed, Overwork, Watch, grow, look, measure
from fuzz.mutating import mutated
from fuzz.table import TARGETS
from fuzz.target import Target

MUTANTS = 300
MEASURED = 20  # inputs of a target whose lines and memory are counted, which is slow

by_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())


@by_target
def test_every_parser_reads_its_valid_seed_inputs_within_limits_of_time_and_memory(target: Target) -> None:
    seeds, watch = list(target.seeds()), Watch()
    assert seeds
    for seed in seeds:
        look(target, seed)
    for seed in Random(1).sample(seeds, min(len(seeds), MEASURED)):
        measure(target, seed, watch)


@pytest.mark.parametrize(("name", "data"), [(name, data) for name, every in FOUND.items() for data in every])
def test_fuzzer_inputs_that_failed_in_the_past_are_read_or_refused(name: str, data: bytes) -> None:
    measure(TARGETS[name], data, Watch())


@by_target
def test_mutated_inputs_are_read_or_refused_with_a_documented_error(target: Target) -> None:
    seeds, random = [*target.seeds(), *FOUND.get(target.name, ())], Random(target.name)
    for _ in range(MUTANTS):
        look(target, mutated(random, seeds, target.at_most_bytes))
    for _ in range(MEASURED // 4):
        measure(target, mutated(random, seeds, target.at_most_bytes), Watch())


def test_the_fuzzer_adds_inputs_that_reach_new_lines_of_code_to_its_corpus() -> None:
    target = TARGETS["markers"]
    seeds = list(target.seeds())
    kept, executions, watch = grow(target, seeds[:1], Random(3), lambda count: count < 600)
    first, _, _ = grow(target, seeds[:1], Random(3), lambda count: count < 1)
    assert executions == 600
    assert len(kept) > len(first) == 1
    assert {name for name, _, _ in watch.steps if "protocol/records.py" in name}


def test_the_fuzzer_reports_inputs_above_its_limits_of_steps_or_memory() -> None:
    def for_ever(data: bytes) -> None:
        while True:
            varint(b"\x02", 0)

    busy = Target("busy", for_ever, lambda: [b""])
    with pytest.raises(Failed) as failed:
        look(busy, b"input", Watch())
    assert isinstance(failed.value.__cause__, Overwork)
    assert failed.value.data == b"input"
    greedy = Target("greedy", lambda data: bytes(1_000_000) and None, lambda: [b""])
    with pytest.raises(Failed, match="1000"):
        measure(greedy, b"", Watch())
    assert not loop.sys.gettrace()


def _believes_every_proof(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fencepost.broker.security.credentials.ScramCredential.proves", lambda *_: True)


def _reads_one_byte_more(patch: pytest.MonkeyPatch) -> None:
    def decoder(cls: type, version: int):
        decode = compiling.decoder(cls, version)
        return lambda data, at: (decode(data, at)[0], decode(data, at)[1] + (type(data) is bytes))

    patch.setattr(messages, "decoder", decoder)


def _columns_without_headers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fencepost.client.records.usual._headers", lambda block, count: ())


def _no_check_of_a_segment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("fencepost.storage.log.segment._Walk._check", lambda *_: True)


@pytest.mark.parametrize(
    ("name", "bug"),
    [
        ("sasl-scram", _believes_every_proof),
        ("requests", _reads_one_byte_more),
        ("records", _columns_without_headers),
        ("segments", _no_check_of_a_segment),
    ],
)
def test_the_fuzzer_finds_a_planted_bug(name: str, bug, monkeypatch: pytest.MonkeyPatch) -> None:
    target, random = TARGETS[name], Random(5)
    seeds = list(target.seeds())
    bug(monkeypatch)
    inputs = chain(seeds, (mutated(random, seeds, target.at_most_bytes) for _ in range(2000)))
    with pytest.raises(Failed):
        deque((look(target, data) for data in inputs), maxlen=0)
