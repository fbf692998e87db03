"""The commands of a scenario, one function each: Kafka's own request names, short forms of the common ones, and steps
of the runner (`topic`, `producer`, `ready`, `delete`, `pause`, `close`, `answer`) that set a scenario up.

README.md describes them for those who write scenarios.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from fencepost.protocol import apis
from fencepost.protocol.errors import ErrorCode

from . import batches, wire
from .messages import build, request_named
from .notation import BadNotation, Command, Pair, Token, Value
from .runner import Run, Sent, decoded, encoded

ACKS = {"all": -1, "1": 1, "0": 0}
SPECIAL_TIMES = {"latest": -1, "earliest": -2, "max": -3, "earliest-local": -4, "last-tiered": -5, "earliest-pending": -6}
READY_SECONDS = 20.0


def perform(run: Run, command: Command) -> list[str] | None:
    """Do what one command says; its answer as lines, or None if it has none to compare."""
    if command.verb[0].isupper():
        return _request(run, command)
    try:
        do = COMMANDS[command.verb]
    except KeyError:
        raise BadNotation(f"there is no command {command.verb}; there are {', '.join(COMMANDS)}") from None
    return do(run, command)


# ------------------------------------------------------------------ requests


def _request(run: Run, command: Command) -> list[str] | None:
    """`Metadata v12 topics=[…]`: any request, field by field."""
    version = command.tokens and re.fullmatch(r"v(\d+)", str(command.tokens[0]))
    if not version:
        raise BadNotation("the version comes first: Metadata v12 …")
    options, fields = _options(command.tokens[1:], {"only"}, flags={"whole"})
    api = request_named(command.verb)
    request = build(api.request, fields, run.names)
    return _send(run, command, api, int(version[1]), request, only=options.get("only"), whole="whole" in options)


def _send(
    run: Run,
    command: Command,
    api: apis.Api,
    version: int,
    request: Any,
    *,
    only: Value = None,
    show_records: bool = False,
    whole: bool = False,
    wait_ms: int | None = None,
) -> list[str] | None:
    """Send, and read the answer unless the command ends in `&`."""
    correlation = run.correlation()

    def show(answer: bytes, seconds: float) -> list[str]:
        renderer = run.renderer(show_records=show_records, whole=whole)
        lines = renderer.lines(decoded(api, version, answer), version)
        lines = _filtered(lines, only)
        if wait_ms is not None:
            lines.append("after the whole wait" if seconds * 1000 >= wait_ms * 0.95 else "before the wait was over")
        return lines

    run.post(command.connection, encoded(api, version, correlation, request), Sent(correlation, show))
    return None if command.only_sent else run.receive(command.connection)


def _filtered(lines: list[str], only: Value) -> list[str]:
    """`only=/…/`: the lines that match, side by side."""
    if not isinstance(only, str):
        return lines
    return [line.strip() for line in lines if re.search(only, line)] or ["(no such line)"]


def _answer(run: Run, command: Command) -> list[str]:
    return run.receive(command.connection)


def _produce(run: Run, command: Command) -> list[str] | None:
    """`produce v=9 acks=1 $t/0 records=3 | records=1 ; $t/1 …`: `|` between batches, `;` between partitions."""
    head, targets = _targets(command.tokens)
    options, _ = _options(head, {"v", "acks", "timeout", "transactional_id"}, strict=True)
    version = int(str(options.get("v", "11")))
    acks = str(options.get("acks", "all"))
    api = request_named("Produce")
    request = api.request(
        transactional_id=_text(run, options.get("transactional_id")),
        acks=ACKS[acks] if acks in ACKS else int(acks),
        timeout_ms=int(str(options.get("timeout", "30000"))),
        topic_data=[
            api.request.Topic(
                **_topic(run, "name", name, version >= 13),
                partition_data=[
                    api.request.Topic.Partition(index=index, records=_records(run, words)) for index, words in partitions
                ],
            )
            for name, partitions in _by_topic(targets)
        ],
    )
    if acks == "0":
        return _unanswered(run, command, encoded(api, version, run.correlation(), request))
    return _send(run, command, api, version, request)


def _records(run: Run, tokens: list[Token]) -> memoryview | None:
    """The batches of one partition entry, one after another."""
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
    """acks=0: whatever comes next on the connection answers a later request, or the connection is closed."""
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


def _fetch(run: Run, command: Command) -> list[str] | None:
    """`fetch v=12 session=$s1 session_epoch=1 forget=[$t/1] records $t/0 offset=5 max_bytes=100 ; …`."""
    head, targets = _targets(command.tokens)
    known = {"v", "max_wait", "min_bytes", "max_bytes", "isolation", "session", "session_epoch", "forget", "rack", "replica"}
    options, _ = _options(head, known | {"only"}, flags={"records", "timed"}, strict=True)
    version = int(str(options.get("v", "12")))
    by_id = version >= 13
    api = request_named("Fetch")
    number = run.names.number
    max_wait = number(str(options.get("max_wait", "0")))
    request = api.request(
        replica_id=number(str(options.get("replica", "-1"))),
        max_wait_ms=max_wait,
        min_bytes=number(str(options.get("min_bytes", "1"))),
        max_bytes=number(str(options.get("max_bytes", "52428800"))),
        isolation_level={"read_committed": 1}.get(str(options.get("isolation")), 0),
        session_id=number(str(options.get("session", "0"))),
        session_epoch=number(str(options.get("session_epoch", "-1"))),
        rack_id=str(options.get("rack", "")),
        topics=[
            api.request.Topic(
                **_topic(run, "topic", name, by_id),
                partitions=[_fetch_partition(run, api, index, words) for index, words in partitions],
            )
            for name, partitions in _by_topic(targets)
        ],
        forgotten_topics_data=[
            api.request.ForgottenTopic(**_topic(run, "topic", name, by_id), partitions=[index for index, _ in partitions])
            for name, partitions in _by_topic([(*_target(word), []) for word in options.get("forget", [])])  # type: ignore
        ],
    )
    wait = max_wait if "timed" in options else None
    show_records = "records" in options
    return _send(
        run, command, api, version, request, only=options.get("only"), show_records=show_records, wait_ms=wait
    )


def _fetch_partition(run: Run, api: apis.Api, index: int, words: list[Token]) -> Any:
    options, _ = _options(words, {"offset", "max_bytes", "leader_epoch", "last_epoch", "log_start"}, strict=True)
    numbers = {name: run.names.number(str(value)) for name, value in options.items()}
    return api.request.Topic.Partition(
        partition=index,
        current_leader_epoch=numbers.get("leader_epoch", -1),
        fetch_offset=numbers.get("offset", 0),
        last_fetched_epoch=numbers.get("last_epoch", -1),
        log_start_offset=numbers.get("log_start", -1),
        partition_max_bytes=numbers.get("max_bytes", 1048576),
    )


def _list_offsets(run: Run, command: Command) -> list[str] | None:
    """`list-offsets v=7 $t/0 at=earliest ; $t/1 at=now-1h`."""
    head, targets = _targets(command.tokens)
    options, _ = _options(head, {"v", "isolation", "replica"}, strict=True)
    version = int(str(options.get("v", "7")))
    api = request_named("ListOffsets")
    request = api.request(
        replica_id=int(str(options.get("replica", "-1"))),
        isolation_level={"read_committed": 1}.get(str(options.get("isolation")), 0),
        topics=[
            api.request.Topic(
                name=run.names.text(name),
                partitions=[_list_offsets_partition(run, api, index, words) for index, words in partitions],
            )
            for name, partitions in _by_topic(targets)
        ],
    )
    return _send(run, command, api, version, request)


def _list_offsets_partition(run: Run, api: apis.Api, index: int, words: list[Token]) -> Any:
    options, _ = _options(words, {"at", "leader_epoch"}, strict=True)
    at = str(options.get("at", "latest"))
    return api.request.Topic.Partition(
        partition_index=index,
        current_leader_epoch=run.names.number(str(options.get("leader_epoch", "-1"))),
        timestamp=SPECIAL_TIMES[at] if at in SPECIAL_TIMES else run.names.number(at),
    )


# ------------------------------------------------------------------ bytes made by hand


def _frame(run: Run, command: Command) -> list[str] | None:
    """`frame key=3 version=99 header=2 body=…`: a request made by hand; `as=0` reads the answer in that version."""
    known = {"key", "version", "header", "body", "client", "correlation", "length", "as", "only"}
    options, _ = _options(command.tokens, known, strict=True)
    key = int(str(options["key"]))
    correlation = int(str(options.get("correlation", "7")))
    data = wire.frame(
        key,
        int(str(options["version"])),
        correlation,
        bytes.fromhex(_hex(run, str(options.get("body") or ""))),
        header=int(str(options.get("header", "1"))),
        client_id=None if options.get("client", "oracle") is None else str(options.get("client", "oracle")),
    )
    if "length" in options:
        data = int(str(options["length"])).to_bytes(4, "big", signed=True) + data[4:]

    def show(answer: bytes, seconds: float) -> list[str]:
        version = options.get("as")
        if version is None:
            return [f"answer {answer[4:].hex() or '(empty)'}"]
        api = apis.APIS[key]
        lines = run.renderer().lines(decoded(api, int(str(version)), answer), int(str(version)))
        return _filtered(lines, options.get("only"))

    run.post(command.connection, data, Sent(correlation, show))
    return None if command.only_sent else run.receive(command.connection)


def _hex(run: Run, text: str) -> str:
    """Hex digits; `$t` in them is the topic's name with its length of two bytes before it."""

    def named(found: re.Match[str]) -> str:
        name = run.names.text(found[0]).encode()
        return (len(name).to_bytes(2, "big") + name).hex()

    return re.sub(r"\$[a-z]+(?![0-9a-z])", named, text.replace("_", ""))


def _bytes(run: Run, command: Command) -> list[str]:
    """`bytes hex=…` or `bytes text=…`: whatever it is, as it is; `as=22/2` reads the answer as that API's and version's."""
    options, _ = _options(command.tokens, {"hex", "text", "as"}, strict=True)
    text = str(options.get("text"))
    data = bytes.fromhex(str(options["hex"]).replace("_", "")) if "hex" in options else text.encode()
    connection = run.connection(command.connection)
    connection.send(data)
    answer = connection.receive()
    if answer is None:
        return ["closed"]
    if "as" not in options:
        return [f"answer {answer.hex()}"]
    key, _, version = str(options["as"]).partition("/")
    return run.renderer().lines(decoded(apis.APIS[int(key)], int(version), answer), int(version))


# ------------------------------------------------------------------ steps that set up


def _topic_exists(run: Run, command: Command) -> None:
    """`topic $t partitions=3 cleanup.policy=compact`: create it, and wait until it can be used."""
    name, *words = command.tokens
    _, settings = _options(words, set())
    count = int(str(settings.pop("partitions", "1")))
    made = apis.APIS[19].request
    topic = made.Topic(
        name=run.names.text(str(name)),
        num_partitions=count,
        replication_factor=1,
        configs=[made.Topic.Config(name=key, value=_text(run, value)) for key, value in settings.items()],
    )
    answer = run.ask("CreateTopicsRequest", 7, topics=[topic], timeout_ms=10000).topics[0]
    if answer.error_code:
        raise BadNotation(f"{ErrorCode(answer.error_code).name}: {answer.error_message}")
    run.names.topic_id(topic.name, answer.topic_id)
    _wait(run, topic.name, count, answer.topic_id)


def _ready(run: Run, command: Command) -> None:
    """`ready $t partitions=3`: wait until a topic that the scenario itself created can be used."""
    options, _ = _options(command.tokens[1:], {"partitions"}, strict=True)
    _wait(run, run.names.text(str(command.tokens[0])), int(str(options.get("partitions", "1"))), None)


def _wait(run: Run, name: str, count: int, topic_id: bytes | None) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not _is_ready(run, name, count, topic_id):
        if time.monotonic() > deadline:
            raise BadNotation(f"the topic is not ready after {READY_SECONDS:.0f} s")
        time.sleep(0.005)


def _is_ready(run: Run, name: str, count: int, topic_id: bytes | None) -> bool:
    asked = apis.APIS[3].request.Topic(name=name)
    found = run.ask("MetadataRequest", 12, topics=[asked], allow_auto_topic_creation=False).topics[0]
    if len(found.partitions) < count or (topic_id and found.topic_id != topic_id):
        return False
    run.names.topic_id(name, found.topic_id)
    lists = apis.APIS[2].request
    partitions = [lists.Topic.Partition(partition_index=n, timestamp=-1) for n in range(count)]
    answer = run.ask("ListOffsetsRequest", 7, topics=[lists.Topic(name=name, partitions=partitions)])
    return all(partition.error_code == 0 for partition in answer.topics[0].partitions)


def _delete(run: Run, command: Command) -> None:
    """`delete $t`: delete it, and wait until nobody knows it any more."""
    name = run.names.text(str(command.tokens[0]))
    answer = run.ask("DeleteTopicsRequest", 5, topic_names=[name], timeout_ms=10000).responses[0]
    if answer.error_code:
        raise BadNotation(ErrorCode(answer.error_code).name)
    asked = apis.APIS[3].request.Topic(name=name)
    deadline = time.monotonic() + READY_SECONDS
    while not run.ask("MetadataRequest", 12, topics=[asked], allow_auto_topic_creation=False).topics[0].error_code:
        if time.monotonic() > deadline:
            raise BadNotation("the topic is still there")
        time.sleep(0.005)


def _producer(run: Run, command: Command) -> None:
    """`producer $p`: a producer id for an idempotent producer."""
    answer = run.ask("InitProducerIdRequest", 4, transaction_timeout_ms=60000)
    deadline = time.monotonic() + READY_SECONDS
    while answer.error_code and ErrorCode(answer.error_code).retriable and time.monotonic() < deadline:
        time.sleep(0.05)
        answer = run.ask("InitProducerIdRequest", 4, transaction_timeout_ms=60000)
    if answer.error_code:
        raise BadNotation(ErrorCode(answer.error_code).name)
    run.names.bind(str(command.tokens[0]), "producer", answer.producer_id)


def _pause(run: Run, command: Command) -> None:
    options, _ = _options(command.tokens, {"ms"}, strict=True)
    time.sleep(int(str(options["ms"])) / 1000)


def _close(run: Run, command: Command) -> None:
    run.close(command.connection)


COMMANDS: dict[str, Callable[[Run, Command], list[str] | None]] = {
    "produce": _produce,
    "fetch": _fetch,
    "list-offsets": _list_offsets,
    "answer": _answer,
    "frame": _frame,
    "bytes": _bytes,
    "topic": _topic_exists,
    "ready": _ready,
    "delete": _delete,
    "producer": _producer,
    "pause": _pause,
    "close": _close,
}


# ------------------------------------------------------------------ reading tokens


def _options(
    tokens: list[Token], known: set[str], *, flags: set[str] = frozenset(), strict: bool = False  # type: ignore[assignment]
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Pairs of known names, and the rest; a bare word must be one of `flags`."""
    options: dict[str, Value] = {}
    rest: dict[str, Value] = {}
    for token in tokens:
        if isinstance(token, str):
            if token not in flags:
                raise BadNotation(f"unexpected {token!r}")
            options[token] = token
        elif token.name in known:
            options[token.name] = token.value
        elif strict:
            raise BadNotation(f"unknown {token.name}=; known: {', '.join(sorted(known))}")
        else:
            rest[token.name] = token.value
    return options, rest


def _targets(tokens: list[Token]) -> tuple[list[Token], list[tuple[str, int, list[Token]]]]:
    """What stands before the first `topic/partition`, and each of them with the words behind it."""
    head: list[Token] = []
    targets: list[tuple[str, int, list[Token]]] = []
    for token in tokens:
        if isinstance(token, str) and "/" in token:
            targets.append((*_target(token), []))
        elif token == ";":
            continue
        elif targets:
            targets[-1][2].append(token)
        else:
            head.append(token)
    return head, targets


def _target(word: Any) -> tuple[str, int]:
    topic, _, partition = str(word).rpartition("/")
    return topic, int(partition)


def _by_topic(targets: list[tuple[str, int, list[Token]]]) -> Iterator[tuple[str, list[tuple[int, list[Token]]]]]:
    """Neighbours of one topic together, in the order written."""
    groups: list[tuple[str, list[tuple[int, list[Token]]]]] = []
    for topic, index, words in targets:
        if not groups or groups[-1][0] != topic:
            groups.append((topic, []))
        groups[-1][1].append((index, words))
    return iter(groups)


def _topic(run: Run, field: str, word: str, by_id: bool) -> dict[str, Any]:
    """A topic by name, or by the id it has now; `$t.id` and a literal id are taken as they are."""
    if not by_id:
        return {field: run.names.text(word)}
    newest = run.names.newest_topic_id(run.names.text(word)) if "." not in word and word.startswith("$") else None
    return {"topic_id": newest or run.names.uuid(word)}


def _text(run: Run, value: Value) -> str | None:
    return None if value is None else run.names.text(str(value))
