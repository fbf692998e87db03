"""Every fast path of the broker does what the general path does, whatever is asked: answers, logs, counters, state.

The short cuts: fast_produce, fast_transactions, the small frame and the small replies of a connection.
"""

import pytest
from both_ways import CLIENTS, WAYS, Script, Step, carried_out
from crc32c import crc32c
from fencepost.protocol.messages.topics import DeleteTopicsRequest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import first_only, share_of
from produce_requests import EARLY_MS, batch, create, produce
from simulated_client import SimulatedClient

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000

clients = st.integers(0, len(CLIENTS) - 1)


def changed(content: bytes, position: int, change: int, checked: bool) -> bytes:
    """Return the batch with bits of one header byte flipped. checked: with a CRC that is right for the change."""
    lying = bytearray(content)
    lying[position] ^= change
    if checked:
        lying[17:21] = crc32c(bytes(lying[21:])).to_bytes(4, "big")
    return bytes(lying)


def saying(content: bytes, count: int) -> bytes:
    """Return the batch with a wrong record count, in both fields that tell it, and a CRC that is right for it."""
    lying = bytearray(content)
    lying[23:27], lying[57:61] = (count - 1).to_bytes(4, "big"), count.to_bytes(4, "big")
    return changed(bytes(lying), 0, 0, True)


def or_else(draw, ordinary, odd: dict[str, list]) -> dict:
    """Return the ordinary fields, in half of the draws with one of them replaced by an unusual value. So nearly every
    request takes the fast path, or misses it by one field.
    """
    name = draw(st.sampled_from([None] * len(odd) + list(odd)))
    return ordinary if name is None else ordinary | {name: draw(st.sampled_from(odd[name]))}


ODD_PRODUCES = {
    "topic": ["u", "keys", "stamped", "none", ""],
    "partition": [2, 3, -1],
    "version": [3, 6],
    "acks": [0, 5],
    "producer_epoch": [1, -1],
    "sequence": [0, 1, 2**31 - 1, -2],
    "timestamp": [-1, EARLY_MS + 2 * HOUR_MS],
    "value": [b"v" * 400, b"v" * 20_000],
    "codec": [1, 4, 7],
    "transactional": [True],
    "transactional_id": ["x", ""],
    "batches": [2],
    "count": [2, 3],
    "said": [9, 2**31 - 1],
    "too large": [{"topic": "u", "value": b"v" * 400}],
    "changed": [(position, change) for position in range(61) for change in (1, 8, 0x20, 0x80)],
    "changed under a CRC": [(position, change) for position in range(21, 61) for change in (1, 8, 0x20, 0x80)],
}


def ordinary_produce(partition=0, version=9, acks=-1, producer_id=-1, topic="t") -> dict:
    return {
        "topic": topic,
        "partition": partition,
        "version": version,
        "acks": acks,
        "producer_id": producer_id,
        "producer_epoch": 0,
    }


@st.composite
def produces(draw) -> Step:
    """Draw a Produce without producer id or of an idempotent producer: ordinary, or with one unusual field."""
    ordinary = ordinary_produce(
        draw(st.integers(0, 1)),
        draw(st.sampled_from([7, 8, 9, 11, 12])),
        draw(st.sampled_from([-1, 1])),
        draw(st.sampled_from([-1, 7000, 7001])),
        draw(st.sampled_from(["t", "t", "t", "u"])),
    )
    fields = or_else(draw, ordinary, ODD_PRODUCES)
    client = draw(clients)
    return lambda script: produced(script, client, fields, odd=fields is not ordinary)


def produced(script: Script, client: int, fields: dict, *, odd: bool) -> None:
    """Send a batch. If it is ordinary, the next batch of its producer has the next sequence; if it is odd (unusual),
    the same.
    """
    fields = fields | fields.get("too large", {})
    producer_id, place = fields["producer_id"], (fields["producer_id"], fields["partition"])
    sequence = script.sequences[place]
    if not odd:
        script.sequences[place] = (sequence + 1) % 2**31
    more = {} if producer_id < 0 else {"producer_id": producer_id, "producer_epoch": fields["producer_epoch"]}
    if more:
        more["base_sequence"] = fields.get("sequence", sequence)
    named = {name: fields[name] for name in ("timestamp", "value", "transactional") if name in fields}
    codec = fields.get("codec", 0)
    content = batch(fields.get("count", 1), codec=codec if codec < 7 else 0, **named, **more)
    if "said" in fields:
        content = saying(content, fields["said"])
    if codec == 7:
        content = changed(content, 22, 7, True)
    if "changed" in fields:
        content = changed(content, *fields["changed"], False)
    if "changed under a CRC" in fields:
        content = changed(content, *fields["changed under a CRC"], True)
    request = produce(
        fields["topic"],
        *[content] * fields.get("batches", 1),
        partition=fields["partition"],
        acks=fields["acks"],
        transactional_id=fields.get("transactional_id"),
    )
    script.send(client, request, fields["version"])


ODD_STEPS = {
    "what": ["add", "send", "end"],
    "client": [0, 1, 2],
    "topic": ["u", "keys", "none", "__transaction_state"],
    "partition": [2, 3, -1],
    "late": [1, -1],
    "pair": [-1, 7000],
    "sequence": [0, 1, 5],
}


@st.composite
def in_transactions(draw) -> Step:
    """Draw the next request of a TV1 producer (add, send, end): ordinary, or with one unusual field."""
    number, version, commit = draw(st.integers(0, 1)), draw(st.integers(0, 3)), draw(st.booleans())
    ordinary = ordinary_step(number)
    fields = or_else(draw, ordinary, ODD_STEPS)
    return lambda script: taken(script, number, version, commit, fields, odd=fields is not ordinary)


def ordinary_step(number: int) -> dict:
    return {"what": None, "client": number, "topic": "t", "partition": 0, "late": 0}


def taken(script: Script, number: int, version: int, commit: bool, fields: dict, *, odd: bool) -> None:
    """Send the next request of the transaction. After an odd (unusual) one the transaction goes on as if it was not
    sent.
    """
    txn, client = script.txns[number], fields["client"]
    what = fields["what"] or ("add", "send", "send", "end")[script.stages[number] % 4]
    script.stages[number] += not odd
    pair = txn.producer_id, txn.epoch
    txn.epoch += fields["late"]
    txn.producer_id = fields.get("pair", txn.producer_id)
    place = fields["topic"], fields["partition"]
    if what == "add":
        script.send(client, txn.adding(*place), version)
    elif what == "end":
        script.send(client, txn.ending(commit), version)
    else:
        sequence = txn.sequences[place]
        request = txn.producing(place[0], b"v", place[1], sequence=fields.get("sequence"))
        script.send(client, request, 8 + version)
        if odd:
            txn.sequences[place] = sequence
    txn.producer_id, txn.epoch = pair


def _init(number: int) -> Step:
    def step(script: Script) -> None:
        script.wait()
        script.txns[number].client = SimulatedClient(script.broker)  # a late one would be refused
        script.txns[number].init()

    return step


def _recreate(name: str) -> Step:
    """Delete the topic and create it again, so that requests that the fast paths remember name another topic."""

    def step(script: Script) -> None:
        script.send(0, DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)
        script.send(0, create(name, 3), 5)
        script.wait()

    return step


@st.composite
def while_the_disk_is_nearly_full(draw) -> Step:
    inner = draw(st.one_of(produces(), in_transactions()))

    def step(script: Script) -> None:
        script.wait()
        script.inner.store.space_low = True
        inner(script)
        script.wait()
        script.inner.store.space_low = False

    return step


def _offline(partition: int) -> Step:
    def step(script: Script) -> None:
        script.wait()
        topic = script.inner.topics.by_name.get("u")
        if topic is not None:
            topic.partitions[partition].log.offline = "its files are damaged"

    return step


waits = st.sampled_from([0.0001, 0.05, 0.05, 0.05, 80.0]).map(lambda seconds: lambda script: script.wait(seconds))
events = st.one_of(
    st.integers(0, 1).map(_init),
    st.sampled_from(["t", "u"]).map(_recreate),
    while_the_disk_is_nearly_full(),
    st.integers(0, 1).map(_offline),
)
steps = st.lists(
    st.one_of(produces(), produces(), produces(), in_transactions(), in_transactions(), waits, waits, events),
    min_size=10,
    max_size=60,
)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=share_of(10))
@given(steps)
def test_the_fast_and_the_general_path_give_the_same_answers_and_state(way, steps):
    assert carried_out(steps, None) == carried_out(steps, WAYS[way])


def each(odd: dict[str, list]) -> list[dict]:
    return [{name: value} for name, values in odd.items() for value in values]


@pytest.mark.parametrize("version", first_only([9, 7, 12]))
@pytest.mark.parametrize("producer_id", [-1, 7000])
def test_each_unusual_produce_is_answered_the_same_on_both_paths(version, producer_id):
    ordinary = ordinary_produce(0, version, -1, producer_id)
    steps: list[Step] = []
    for odd in each(ODD_PRODUCES):
        steps += [
            lambda script: produced(script, 0, ordinary, odd=False),
            Script.wait,
            lambda script, odd=odd: produced(script, 0, ordinary | odd, odd=True),
            Script.wait,
        ]
    assert carried_out(steps, None) == carried_out(steps, WAYS["no_fast_paths"])


@pytest.mark.parametrize("version", [0, 3])
@pytest.mark.parametrize("what", ["add", "send", "end"])
@pytest.mark.parametrize("way", first_only(["no_fast_paths", "no_fast_transactions"]))
def test_each_unusual_transaction_request_is_answered_the_same_on_both_paths(version, what, way):
    """In a transaction that is open, and where none is."""
    ordinary = ordinary_step(0)
    steps: list[Step] = []
    for odd in each(ODD_STEPS):
        for before in (0, 2, 4):
            steps += [lambda script: taken(script, 0, version, True, ordinary, odd=False), Script.wait] * before
            steps += [
                lambda script, odd=odd: taken(script, 0, version, False, ordinary | {"what": what} | odd, odd=True),
                Script.wait,
            ]
    assert carried_out(steps, None) == carried_out(steps, WAYS[way])
