"""Short forms of the requests that scenarios ask most: produce, fetch and list-offsets."""

from __future__ import annotations

from typing import Any

from fencepost.protocol import apis

from . import batches, wire
from .asking import send
from .messages import request_named
from .notation import Command, Pair, Token
from .runner import Run, encoded
from .words import by_topic, options, target, targets, text, topic

ACKS = {"all": -1, "1": 1, "0": 0}
SPECIAL_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max": -3,
    "earliest-local": -4,
    "last-tiered": -5,
    "earliest-pending": -6,
}


def produce(run: Run, command: Command) -> list[str] | None:
    """Perform `produce v=9 acks=1 $t/0 records=3 | records=1 ; $t/1 …`. `|` stands between batches, `;` between
    partitions.
    """
    head, chosen = targets(command.tokens)
    given, _ = options(head, {"v", "acks", "timeout", "transactional_id", "id"}, strict=True)
    version = int(str(given.get("v", "11")))
    acks = str(given.get("acks", "all"))
    api = request_named("Produce")
    request = api.request(
        transactional_id=text(run, given.get("transactional_id", given.get("id"))),
        acks=ACKS[acks] if acks in ACKS else int(acks),
        timeout_ms=int(str(given.get("timeout", "30000"))),
        topic_data=[
            api.request.Topic(
                **topic(run, "name", name, version >= 13),
                partition_data=[
                    api.request.Topic.Partition(index=index, records=_records(run, words))
                    for index, words in partitions
                ],
            )
            for name, partitions in by_topic(chosen)
        ],
    )
    if acks == "0":
        return _unanswered(run, command, encoded(api, version, run.correlation(), request))
    return send(run, command, api, version, request)


def _records(run: Run, tokens: list[Token]) -> memoryview | None:
    """Return the batches of one partition as one buffer; None for the word `null`. A producer id that the scenario
    writes as a number is shown as that number in its output, too.
    """
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token == "|":
            parts.append([])
        else:
            parts[-1].append(token)
    for token in tokens:
        if isinstance(token, Pair) and token.name == "pid":
            run.names.literal("producer", run.names.number(str(token.value)), str(token.value))
    built = [batches.build(batches.Words.of(part, run.names.number)) for part in parts]
    return None if built == [None] else memoryview(b"".join(batch or b"" for batch in built))


def _unanswered(run: Run, command: Command, data: bytes) -> list[str] | None:
    """Send a request with acks=0. Returns `no answer` if the next frame answers a request sent after it, and `closed`
    if the connection ends. With `&`, returns None at once.
    """
    connection = run.connection(command.connection)
    connection.send(data)
    if command.only_sent:
        return None
    probe = run.correlation()
    connection.send(wire.frame(18, 0, probe, b"", header=1, client_id="oracle"))
    answer = connection.receive()
    if answer is None:
        return ["closed"]
    return ["no answer" if int.from_bytes(answer[:4], "big") == probe else "an answer"]


def fetch(run: Run, command: Command) -> list[str] | None:
    """Perform `fetch v=12 session=$s1 session_epoch=1 forget=[$t/1] records $t/0 offset=5 max_bytes=100 ; …`."""
    head, chosen = targets(command.tokens)
    known = {
        "v",
        "max_wait",
        "min_bytes",
        "max_bytes",
        "isolation",
        "session",
        "session_epoch",
        "forget",
        "rack",
        "replica",
    }
    given, _ = options(head, known | {"only"}, flags={"records", "timed"}, strict=True)
    version = int(str(given.get("v", "12")))
    by_id = version >= 13
    api = request_named("Fetch")
    number = run.names.number
    max_wait = number(str(given.get("max_wait", "0")))
    request = api.request(
        replica_id=number(str(given.get("replica", "-1"))),
        max_wait_ms=max_wait,
        min_bytes=number(str(given.get("min_bytes", "1"))),
        max_bytes=number(str(given.get("max_bytes", "52428800"))),
        isolation_level={"read_committed": 1}.get(str(given.get("isolation")), 0),
        session_id=number(str(given.get("session", "0"))),
        session_epoch=number(str(given.get("session_epoch", "-1"))),
        rack_id=str(given.get("rack", "")),
        topics=[
            api.request.Topic(
                **topic(run, "topic", name, by_id),
                partitions=[_fetch_partition(run, api, index, words) for index, words in partitions],
            )
            for name, partitions in by_topic(chosen)
        ],
        forgotten_topics_data=[
            api.request.ForgottenTopic(
                **topic(run, "topic", name, by_id), partitions=[index for index, _ in partitions]
            )
            for name, partitions in by_topic([(*target(word), []) for word in given.get("forget", [])])  # type: ignore
        ],
    )
    wait = max_wait if "timed" in given else None
    show_records = "records" in given
    return send(run, command, api, version, request, only=given.get("only"), show_records=show_records, wait_ms=wait)


def _fetch_partition(run: Run, api: apis.Api, index: int, words: list[Token]) -> Any:
    given, _ = options(words, {"offset", "max_bytes", "leader_epoch", "last_epoch", "log_start"}, strict=True)
    numbers = {name: run.names.number(str(value)) for name, value in given.items()}
    return api.request.Topic.Partition(
        partition=index,
        current_leader_epoch=numbers.get("leader_epoch", -1),
        fetch_offset=numbers.get("offset", 0),
        last_fetched_epoch=numbers.get("last_epoch", -1),
        log_start_offset=numbers.get("log_start", -1),
        partition_max_bytes=numbers.get("max_bytes", 1048576),
    )


def list_offsets(run: Run, command: Command) -> list[str] | None:
    """Perform `list-offsets v=7 $t/0 at=earliest ; $t/1 at=now-1h`."""
    head, chosen = targets(command.tokens)
    given, _ = options(head, {"v", "isolation", "replica"}, strict=True)
    version = int(str(given.get("v", "7")))
    api = request_named("ListOffsets")
    request = api.request(
        replica_id=int(str(given.get("replica", "-1"))),
        isolation_level={"read_committed": 1}.get(str(given.get("isolation")), 0),
        topics=[
            api.request.Topic(
                name=run.names.text(name),
                partitions=[_list_offsets_partition(run, api, index, words) for index, words in partitions],
            )
            for name, partitions in by_topic(chosen)
        ],
    )
    return send(run, command, api, version, request)


def _list_offsets_partition(run: Run, api: apis.Api, index: int, words: list[Token]) -> Any:
    given, _ = options(words, {"at", "leader_epoch"}, strict=True)
    at = str(given.get("at", "latest"))
    return api.request.Topic.Partition(
        partition_index=index,
        current_leader_epoch=run.names.number(str(given.get("leader_epoch", "-1"))),
        timestamp=SPECIAL_TIMES[at] if at in SPECIAL_TIMES else run.names.number(at),
    )
