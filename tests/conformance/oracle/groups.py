"""Short forms of the requests of groups: members by the names that scenarios give them.

The client of these requests is `$client`, and its member ids begin with that, so that they are shown by name. Lists of
members and groups are sorted, because Kafka gives them in no order; of all groups only the scenario's own are shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from fencepost.protocol import apis
from fencepost.protocol.schema import Field

from . import embedded
from .messages import request_named
from .notation import BadNotation, Command, Value
from .rendering import MEMBER, MEMBERS, Renderer
from .runner import Run, Sent, decoded
from .transactions import wait_for_group_coordinator
from .words import options

CLIENT = "$client"
SHOWN_WHOLE = {"metadata", "assignment", "member_metadata", "member_assignment"}
NO_OPERATIONS = " authorized_operations=-2147483648"
WHO = {"v", "member", "generation", "instance"}


class GroupRenderer(Renderer):
    """Renders answers about groups. Subscriptions and assignments of members are shown as text."""

    def _scalar(self, field: Field, value: Any) -> str:
        if field.name in SHOWN_WHOLE:
            content = bytes(value)
            words = embedded.shown(self._names, content, assignment="assignment" in field.name)
            return words or repr(content.decode(errors="backslashreplace"))[1:-1] or '""'
        if field.name in MEMBERS and MEMBER.fullmatch(str(value)):
            return self._names.show("text", value, "member")
        return super()._scalar(field, value)

    def shown(self, response: Any, version: int) -> list[str]:
        self._sort(response)
        return [line.replace(NO_OPERATIONS, "") for line in self.lines(response, version)]

    def _sort(self, response: Any) -> None:
        for message in [response, *getattr(response, "groups", [])]:
            members = getattr(message, "members", [])
            if members and hasattr(members[0], "member_id") and not hasattr(members[0], "error_code"):
                members.sort(key=lambda member: self._names.show_text(member.member_id))


def join(run: Run, command: Command) -> list[str] | None:
    """Perform `join $g v=9 as=$m1 member=$m1 instance=$i session=10000 rebalance=60000 type=consumer
    protocols=[range=x]`. `as` names the member id of the answer.
    """
    group, given = _given(run, command, {"v", "as", "member", "instance", "session", "rebalance", "type", "protocols"})
    api, version = request_named("JoinGroup"), _version(given, 9)
    request = api.request(
        group_id=group,
        session_timeout_ms=int(str(given.get("session", "10000"))),
        rebalance_timeout_ms=int(str(given.get("rebalance", "60000"))) if version >= 1 else -1,
        member_id=_text(run, given.get("member", "")) or "",
        group_instance_id=_text(run, given.get("instance")),
        protocol_type=str(given.get("type", "consumer")),
        protocols=[
            api.request.Protocol(name=name, metadata=metadata)
            for name, metadata in _pairs(run, given.get("protocols", ["range=x"]))
        ],
    )
    name = given.get("as")

    def note(response: Any) -> None:
        if isinstance(name, str) and response.member_id:
            run.names.bind(name, "text", response.member_id)

    return _send(run, command, api, version, request, note)


def sync(run: Run, command: Command) -> list[str] | None:
    """Perform `sync $g v=5 member=$m1 generation=1 instance=$i type=consumer protocol=range assign=[$m1=a $m2=b]`."""
    group, given = _given(run, command, WHO | {"type", "protocol", "assign"})
    api, version = request_named("SyncGroup"), _version(given, 5)
    names = version >= 5
    request = api.request(
        group_id=group,
        **_who(run, given),
        protocol_type=_text(run, given.get("type", "consumer")) if names else None,
        protocol_name=_text(run, given.get("protocol", "range")) if names else None,
        assignments=[
            api.request.Assignment(member_id=member, assignment=assignment)
            for member, assignment in _pairs(run, given.get("assign", []))
        ],
    )
    return _send(run, command, api, version, request)


def heartbeat(run: Run, command: Command) -> list[str] | None:
    """Perform `heartbeat $g v=4 member=$m1 generation=1 instance=$i`."""
    group, given = _given(run, command, WHO)
    api = request_named("Heartbeat")
    return _send(run, command, api, _version(given, 4), api.request(group_id=group, **_who(run, given)))


def leave(run: Run, command: Command) -> list[str] | None:
    """Perform `leave $g v=5 members=[$m1 $m2@$i @$i]`, or before version 3 `leave $g v=2 member=$m1`."""
    group, given = _given(run, command, {"v", "member", "members"})
    api, version = request_named("LeaveGroup"), _version(given, 5)
    if version < 3:
        request = api.request(group_id=group, member_id=_text(run, given.get("member", "")) or "")
    else:
        members = [str(word).partition("@") for word in _list(given.get("members", []))]
        request = api.request(
            group_id=group,
            members=[
                api.request.Member(
                    member_id=run.names.text(member), group_instance_id=run.names.text(instance) if at else None
                )
                for member, at, instance in members
            ],
        )
    return _send(run, command, api, version, request)


def describe(run: Run, command: Command) -> list[str] | None:
    """Perform `describe-groups v=5 $g $h operations`."""
    groups, given, version = _groups(run, command, {"v"}, 5)
    api = request_named("DescribeGroups")
    asks = "operations" in given
    return _send(run, command, api, version, api.request(groups=groups, include_authorized_operations=asks))


def delete(run: Run, command: Command) -> list[str] | None:
    """Perform `delete-groups v=2 $g $h`."""
    groups, _, version = _groups(run, command, {"v"}, 2)
    api = request_named("DeleteGroups")
    return _send(run, command, api, version, api.request(groups_names=groups))


def listed(run: Run, command: Command) -> list[str] | None:
    """Perform `list-groups v=5 states=[Stable] types=[classic]`: show only groups of this scenario."""
    given, _ = options(command.tokens, {"v", "states", "types"}, strict=True)
    api, version = request_named("ListGroups"), _version(given, 5)
    request = api.request(
        states_filter=[str(each) for each in _list(given.get("states", []))],
        types_filter=[str(each) for each in _list(given.get("types", []))],
    )

    def ours(response: Any) -> None:
        response.groups = [each for each in response.groups if run.names.prefix in each.group_id]
        response.groups.sort(key=lambda each: run.names.show_text(each.group_id))

    return _send(run, command, api, version, request, ours)


def alone(run: Run, command: Command) -> None:
    """Perform `alone $g as=$m1 instance=$i session=10000 protocols=[range=x] assign=a`: join and sync as the only
    member, so that the group is stable. There is no answer to compare.
    """
    group, given = _given(run, command, {"as", "instance", "session", "rebalance", "protocols", "assign", "type"})
    wait_for_group_coordinator(run, Command("group", [group]))
    protocols = _pairs(run, given.get("protocols", ["range=x"]))
    api = request_named("JoinGroup")
    asked = api.request(
        group_id=group,
        session_timeout_ms=int(str(given.get("session", "10000"))),
        rebalance_timeout_ms=int(str(given.get("rebalance", "60000"))),
        member_id="",
        group_instance_id=_text(run, given.get("instance")),
        protocol_type=str(given.get("type", "consumer")),
        protocols=[api.request.Protocol(name=name, metadata=metadata) for name, metadata in protocols],
    )
    answer = _ask(run, api, asked)
    if answer.error_code:
        asked.member_id = answer.member_id
        answer = _ask(run, api, asked)
    syncs = request_named("SyncGroup")
    assignment = syncs.request.Assignment(
        member_id=answer.member_id, assignment=_content(run, str(given.get("assign", "a")))
    )
    asked = syncs.request(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        group_instance_id=_text(run, given.get("instance")),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignments=[assignment],
    )
    if answer.error_code or _ask(run, syncs, asked).error_code:
        raise BadNotation(f"{group} has no member: {answer}")
    run.names.bind(str(given["as"]), "text", answer.member_id)


COMMANDS: dict[str, Callable[[Run, Command], list[str] | None]] = {
    "join": join,
    "sync": sync,
    "heartbeat": heartbeat,
    "leave": leave,
    "describe-groups": describe,
    "delete-groups": delete,
    "list-groups": listed,
    "alone": alone,
}


# ---- Words and wire --------------------------------------------------------------------------------------------


def _given(run: Run, command: Command, known: set[str]) -> tuple[str, dict[str, Value]]:
    """Return the group, which is the first word, and the options."""
    if not command.tokens or not isinstance(command.tokens[0], str):
        raise BadNotation("the group comes first")
    given, _ = options(command.tokens[1:], known, strict=True)
    return run.names.text(command.tokens[0].strip('"')), given


def _groups(run: Run, command: Command, known: set[str], newest: int) -> tuple[list[str], dict[str, Value], int]:
    words = [token for token in command.tokens if isinstance(token, str) and token != "operations"]
    given, _ = options([token for token in command.tokens if token not in words], known, flags={"operations"})
    return [run.names.text(word.strip('"')) for word in words], given, _version(given, newest)


def _version(given: dict[str, Value], newest: int) -> int:
    return int(str(given.get("v", newest)))


def _who(run: Run, given: dict[str, Value]) -> dict[str, Any]:
    return {
        "member_id": _text(run, given.get("member", "")) or "",
        "generation_id": int(str(given.get("generation", "-1"))),
        "group_instance_id": _text(run, given.get("instance")),
    }


def _text(run: Run, value: Value) -> str | None:
    return None if value is None else run.names.text(str(value))


def _list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else [value]


def _pairs(run: Run, value: Value) -> list[tuple[str, bytes]]:
    """Return (name, content) of each pair in a list such as `[a=x b]`. The content `900K` has that size; others are as
    in embedded.py.
    """
    return list(_split(run, _list(value)))


def _split(run: Run, words: list[Value]) -> Iterator[tuple[str, bytes]]:
    for word in words:
        name, _, content = str(word).partition("=")
        large = re.fullmatch(r"(\d+)K", content)
        yield run.names.text(name), b"x" * (int(large[1]) << 10) if large else _content(run, content)


def _content(run: Run, word: str) -> bytes:
    found = embedded.encoded(run.names, word)
    return word.encode() if found is None else found


def _send(
    run: Run,
    command: Command,
    api: apis.Api,
    version: int,
    request: Any,
    note: Callable[[Any], None] = lambda response: None,
) -> list[str] | None:
    correlation = run.correlation()

    def show(answer: bytes, seconds: float) -> list[str]:
        response = decoded(api, version, answer)
        note(response)
        return GroupRenderer(run.names).shown(response, version)

    run.post(command.connection, _encoded(run, api, version, correlation, request), Sent(correlation, show))
    return None if command.only_sent else run.receive(command.connection)


def _encoded(run: Run, api: apis.Api, version: int, correlation: int, request: Any) -> bytes:
    client = run.names.text(CLIENT)
    return b"".join(bytes(piece) for piece in apis.encode_request(api, version, correlation, client, request))


def _ask(run: Run, api: apis.Api, request: Any) -> Any:
    """Send a request that the runner needs itself, on its own connection. Returns the response."""
    connection, correlation = run.connection("(runner)"), run.correlation()
    connection.send(_encoded(run, api, api.max, correlation, request))
    answer = connection.receive()
    if answer is None:
        raise ConnectionError(f"the broker closed the connection on {api.name}")
    return decoded(api, api.max, answer)
