"""Short forms of the requests of transactions, as an old client asks them; `v=` asks as a newer one does."""

from __future__ import annotations

import time
from typing import Any

from fencepost.protocol import apis
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.transactions import TxnTopic

from .asking import send
from .messages import request_named
from .notation import BadNotation, Command, Token, Value
from .runner import Run, Sent, encoded
from .words import by_topic, options, targets

READY_SECONDS = 20.0
LOADING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
GROUP, TRANSACTION = 0, 1
AT_ONCE = 500  # requests sent before their answers are read
ENDED = {"Empty", "CompleteCommit", "CompleteAbort"}
WHO = {"v", "id", "pid", "epoch"}


# ---- Preparing -------------------------------------------------------------------------------------------------


def coordinator(run: Run, kind: int, key: str) -> None:
    """Wait until a group or a transactional id has a coordinator. Raises BadNotation."""
    deadline = time.monotonic() + READY_SECONDS
    while not _is_coordinated(run, kind, key):
        if time.monotonic() > deadline:
            raise BadNotation(f"no coordinator after {READY_SECONDS:.0f} s")
        time.sleep(0.01)


def _is_coordinated(run: Run, kind: int, key: str) -> bool:
    if run.ask("FindCoordinatorRequest", 3, key=key, key_type=kind).error_code:
        return False
    if kind == TRANSACTION:
        code = run.ask("DescribeTransactionsRequest", 0, transactional_ids=[key]).transaction_states[0].error_code
    else:
        code = run.ask("DescribeGroupsRequest", 5, groups=[key]).groups[0].error_code
    return code not in LOADING


def wait_for_group_coordinator(run: Run, command: Command) -> None:
    """Perform `group $g`: wait until the coordinator of the group answers. The group need not exist."""
    coordinator(run, GROUP, run.names.text(str(command.tokens[0])))


def settled(run: Run, command: Command) -> None:
    """Perform `settled $x`: wait until no transaction of this transactional id is open or about to end."""
    key = run.names.text(str(command.tokens[0]))
    deadline = time.monotonic() + READY_SECONDS
    while True:
        state = run.ask("DescribeTransactionsRequest", 0, transactional_ids=[key]).transaction_states[0]
        if state.transaction_state in ENDED:
            return
        if time.monotonic() > deadline:
            raise BadNotation(f"{state.transaction_state} after {READY_SECONDS:.0f} s")
        time.sleep(0.005)


# ---- Requests --------------------------------------------------------------------------------------------------


def init(run: Run, command: Command) -> list[str] | None:
    """Perform `init $x v=4 timeout=60000 pid=$p1 epoch=3 times=32766`. Only the last of several answers is shown."""
    given, _ = options(command.tokens[1:], {"v", "timeout", "pid", "epoch", "times"}, strict=True)
    key = run.names.text(str(command.tokens[0]))
    if key:
        coordinator(run, TRANSACTION, key)
    api, version = request_named("InitProducerId"), int(str(given.get("v", "4")))
    request = api.request(
        transactional_id=key,
        transaction_timeout_ms=run.names.number(str(given.get("timeout", "60000"))),
        producer_id=_producer(run, given.get("pid", "-1")),
        producer_epoch=run.names.number(str(given.get("epoch", "-1"))),
    )
    _many(run, command, api, version, request, int(str(given.get("times", "1"))) - 1)
    answer = send(run, command, api, version, request)
    # Kafka answers so until its broker has got the first block of producer ids.
    while answer and answer[0].startswith(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.name):
        time.sleep(0.05)
        answer = send(run, command, api, version, request)
    return answer


def _many(run: Run, command: Command, api: apis.Api, version: int, request: Any, times: int) -> None:
    """Send one request this many times, and drop the answers."""
    for sent in range(0, times, AT_ONCE):
        count = min(AT_ONCE, times - sent)
        for _ in range(count):
            correlation = run.correlation()
            run.post(
                command.connection,
                encoded(api, version, correlation, request),
                Sent(correlation, lambda answer, seconds: []),
            )
        for _ in range(count):
            run.receive(command.connection)


def add(run: Run, command: Command) -> list[str] | None:
    """Perform `add v=3 id=$x pid=$p1 epoch=0 $t/0 ; $t/1`: send AddPartitionsToTxn."""
    head, chosen = targets(command.tokens)
    given, _ = options(head, WHO, strict=True)
    api = request_named("AddPartitionsToTxn")
    request = api.request(
        **{f"v3_and_below_{name}": value for name, value in _who(run, given).items()},
        v3_and_below_topics=[
            TxnTopic(name=run.names.text(name), partitions=[index for index, _ in partitions])
            for name, partitions in by_topic(chosen)
        ],
    )
    return send(run, command, api, int(str(given.get("v", "3"))), request)


def add_offsets(run: Run, command: Command) -> list[str] | None:
    """Perform `add-offsets v=3 id=$x pid=$p1 epoch=0 group=$g`: send AddOffsetsToTxn."""
    given, _ = options(command.tokens, WHO | {"group"}, strict=True)
    group_id = run.names.text(str(given.get("group", "")))
    api = request_named("AddOffsetsToTxn")
    request = api.request(**_who(run, given), group_id=group_id)
    return send(run, command, api, int(str(given.get("v", "3"))), request)


def commit(run: Run, command: Command) -> list[str] | None:
    """Perform `commit v=4 id=$x pid=$p1 epoch=0`: send EndTxn."""
    return _end(run, command, committed=True)


def abort(run: Run, command: Command) -> list[str] | None:
    """Perform `abort v=4 id=$x pid=$p1 epoch=0`: send EndTxn."""
    return _end(run, command, committed=False)


def _end(run: Run, command: Command, *, committed: bool) -> list[str] | None:
    given, _ = options(command.tokens, WHO, strict=True)
    api = request_named("EndTxn")
    request = api.request(**_who(run, given), committed=committed)
    return send(run, command, api, int(str(given.get("v", "4"))), request)


def txn_offsets(run: Run, command: Command) -> list[str] | None:
    """Perform `txn-offsets v=3 id=$x pid=$p1 epoch=0 group=$g generation= member= instance= $t/0 offset=5 ; …`: send
    TxnOffsetCommit.
    """
    head, chosen = targets(command.tokens)
    given, _ = options(head, WHO | {"group", "generation", "member", "instance"}, strict=True)
    api = request_named("TxnOffsetCommit")
    instance = given.get("instance")
    request = api.request(
        **_who(run, given),
        group_id=run.names.text(str(given.get("group", ""))),
        generation_id=int(str(given.get("generation", "-1"))),
        member_id=run.names.text(str(given.get("member", ""))),
        group_instance_id=None if instance is None else run.names.text(str(instance)),
        topics=[
            api.request.Topic(
                name=run.names.text(name),
                partitions=[_offset(run, api.request.Topic.Partition, index, words) for index, words in partitions],
            )
            for name, partitions in by_topic(chosen)
        ],
    )
    return send(run, command, api, int(str(given.get("v", "3"))), request)


def offset_commit(run: Run, command: Command) -> list[str] | None:
    """Perform `commit-offsets v=7 group=$g generation= member= instance= $t/0 offset=5 ; …`: send OffsetCommit."""
    head, chosen = targets(command.tokens)
    given, _ = options(head, {"v", "group", "generation", "member", "instance"}, strict=True)
    api = request_named("OffsetCommit")
    instance = given.get("instance")
    request = api.request(
        group_id=run.names.text(str(given.get("group", ""))),
        generation_id_or_member_epoch=int(str(given.get("generation", "-1"))),
        member_id=run.names.text(str(given.get("member", ""))),
        group_instance_id=None if instance is None else run.names.text(str(instance)),
        topics=[
            api.request.Topic(
                name=run.names.text(name),
                partitions=[_offset(run, api.request.Topic.Partition, index, words) for index, words in partitions],
            )
            for name, partitions in by_topic(chosen)
        ],
    )
    return send(run, command, api, int(str(given.get("v", "7"))), request)


def _offset(run: Run, cls: type, index: int, words: list[Token]) -> Any:
    given, _ = options(words, {"offset", "leader_epoch", "metadata"}, strict=True)
    metadata = given.get("metadata", "")
    return cls(
        partition_index=index,
        committed_offset=run.names.number(str(given.get("offset", "0"))),
        committed_leader_epoch=int(str(given.get("leader_epoch", "-1"))),
        committed_metadata=None if metadata is None else str(metadata),
    )


def offset_fetch(run: Run, command: Command) -> list[str] | None:
    """Perform `offsets v=7 group=$g stable $t/0 ; $t/1`: send OffsetFetch, without partitions for all of them."""
    head, chosen = targets(command.tokens)
    given, _ = options(head, {"v", "group"}, flags={"stable"}, strict=True)
    api = request_named("OffsetFetch")
    topics = [
        api.request.Topic(name=run.names.text(name), partition_indexes=[index for index, _ in partitions])
        for name, partitions in by_topic(chosen)
    ]
    group_id = run.names.text(str(given.get("group", "")))
    request = api.request(group_id=group_id, topics=topics or None, require_stable="stable" in given)
    return send(run, command, api, int(str(given.get("v", "7"))), request)


def markers(run: Run, command: Command) -> list[str] | None:
    """Perform `markers v=1 pid=$p1 epoch=0 commit coordinator_epoch=0 version=2 $t/0 ; $t/1`: send WriteTxnMarkers."""
    head, chosen = targets(command.tokens)
    known = {"v", "pid", "epoch", "coordinator_epoch", "version"}
    given, _ = options(head, known, flags={"commit", "abort"}, strict=True)
    api = request_named("WriteTxnMarkers")
    marker = api.request.Marker
    request = api.request(
        markers=[
            marker(
                producer_id=_producer(run, given.get("pid", "-1")),
                producer_epoch=run.names.number(str(given.get("epoch", "0"))),
                transaction_result="commit" in given,
                coordinator_epoch=int(str(given.get("coordinator_epoch", "0"))),
                transaction_version=int(str(given.get("version", "0"))),
                topics=[
                    marker.Topic(name=run.names.text(name), partition_indexes=[index for index, _ in partitions])
                    for name, partitions in by_topic(chosen)
                ],
            )
        ]
    )
    return send(run, command, api, int(str(given.get("v", "1"))), request)


def describe(run: Run, command: Command) -> list[str] | None:
    """Perform `describe $x $y`: send DescribeTransactions."""
    api = request_named("DescribeTransactions")
    ids = [run.names.text(str(word)) for word in command.tokens]
    return send(run, command, api, 0, api.request(transactional_ids=ids))


def _who(run: Run, given: dict[str, Value]) -> dict[str, Any]:
    return {
        "transactional_id": run.names.text(str(given.get("id", ""))),
        "producer_id": _producer(run, given.get("pid", "-1")),
        "producer_epoch": run.names.number(str(given.get("epoch", "0"))),
    }


def _producer(run: Run, word: Value) -> int:
    """Return a producer id. One that the scenario made up is shown in answers as it is written here."""
    number = run.names.number(str(word))
    run.names.literal("producer", number, str(word))
    return number
