"""Requests by Kafka's own names, field by field; and how any request is sent and its answer shown."""

from __future__ import annotations

import re
from typing import Any

from fencepost.protocol import apis

from .messages import build, request_named
from .notation import BadNotation, Command, Value
from .runner import Run, Sent, decoded, encoded
from .words import options


def request(run: Run, command: Command) -> list[str] | None:
    """Perform `Metadata v12 topics=[…]`: send any request, given field by field."""
    version = command.tokens and re.fullmatch(r"v(\d+)", str(command.tokens[0]))
    if not version:
        raise BadNotation("the version comes first: Metadata v12 …")
    given, fields = options(command.tokens[1:], {"only"}, flags={"whole"})
    api = request_named(command.verb)
    message = build(api.request, fields, run.names)
    return send(run, command, api, int(version[1]), message, only=given.get("only"), whole="whole" in given)


def send(
    run: Run,
    command: Command,
    api: apis.Api,
    version: int,
    message: Any,
    *,
    only: Value = None,
    show_records: bool = False,
    whole: bool = False,
    wait_ms: int | None = None,
) -> list[str] | None:
    """Send a request. Returns the lines of its answer, or None if the command ends in `&`: then a later `answer` reads
    it.
    """
    correlation = run.correlation()

    def show(answer: bytes, seconds: float) -> list[str]:
        renderer = run.renderer(show_records=show_records, whole=whole)
        lines = renderer.lines(decoded(api, version, answer), version)
        lines = filtered(lines, only)
        if wait_ms is not None:
            lines.append("after the whole wait" if seconds * 1000 >= wait_ms * 0.95 else "before the wait was over")
        return lines

    run.post(command.connection, encoded(api, version, correlation, message, run.client_id), Sent(correlation, show))
    return None if command.only_sent else run.receive(command.connection)


def filtered(lines: list[str], only: Value) -> list[str]:
    """Return the lines that match the option `only=/…/`, without indentation; all lines if it is not given."""
    if not isinstance(only, str):
        return lines
    return [line.strip() for line in lines if re.search(only, line)] or ["(no such line)"]


def client(run: Run, command: Command) -> None:
    """Perform `client $c`: send the requests that follow with this client id."""
    run.client_id = run.names.text(str(command.tokens[0]))


def answer(run: Run, command: Command) -> list[str]:
    """Perform `answer`: return the answer to the oldest request that was sent with `&` on this connection."""
    return run.receive(command.connection)
