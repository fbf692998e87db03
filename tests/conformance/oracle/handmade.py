"""Bytes made by hand: frames that no codec would write, and bytes that are no frames."""

from __future__ import annotations

import re

from fencepost.protocol import apis

from . import wire
from .asking import filtered
from .notation import Command
from .runner import Run, Sent, decoded
from .words import options


def frame(run: Run, command: Command) -> list[str] | None:
    """Perform `frame key=3 version=99 header=2 body=…`: send a request made by hand. `as=0` decodes the answer in that
    version.
    """
    known = {"key", "version", "header", "body", "client", "correlation", "length", "as", "only"}
    given, _ = options(command.tokens, known, strict=True)
    key = int(str(given["key"]))
    correlation = int(str(given.get("correlation", "7")))
    data = wire.frame(
        key,
        int(str(given["version"])),
        correlation,
        bytes.fromhex(_hex(run, str(given.get("body") or ""))),
        header=int(str(given.get("header", "1"))),
        client_id=None if given.get("client", "oracle") is None else str(given.get("client", "oracle")),
    )
    if "length" in given:
        data = int(str(given["length"])).to_bytes(4, "big", signed=True) + data[4:]

    def show(answer: bytes, seconds: float) -> list[str]:
        version = given.get("as")
        if version is None:
            return [f"answer {answer[4:].hex() or '(empty)'}"]
        api = apis.APIS[key]
        lines = run.renderer().lines(decoded(api, int(str(version)), answer), int(str(version)))
        return filtered(lines, given.get("only"))

    run.post(command.connection, data, Sent(correlation, show))
    return None if command.only_sent else run.receive(command.connection)


def _hex(run: Run, text: str) -> str:
    """Return hex digits. `$t` among them becomes the topic's name behind its length of two bytes."""

    def named(found: re.Match[str]) -> str:
        name = run.names.text(found[0]).encode()
        return (len(name).to_bytes(2, "big") + name).hex()

    return re.sub(r"\$[a-z]+(?![0-9a-z])", named, text.replace("_", ""))


def raw_bytes(run: Run, command: Command) -> list[str]:
    """Perform `bytes hex=…` or `bytes text=…`: send these bytes. `as=22/2` decodes the answer as one of that API and
    version.
    """
    given, _ = options(command.tokens, {"hex", "text", "as"}, strict=True)
    text = str(given.get("text"))
    data = bytes.fromhex(str(given["hex"]).replace("_", "")) if "hex" in given else text.encode()
    connection = run.connection(command.connection)
    connection.send(data)
    answer = connection.receive()
    if answer is None:
        return ["closed"]
    if "as" not in given:
        return [f"answer {answer.hex()}"]
    key, _, version = str(given["as"]).partition("/")
    return run.renderer().lines(decoded(apis.APIS[int(key)], int(version), answer), int(version))
