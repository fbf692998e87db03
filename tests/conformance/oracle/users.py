"""Short forms of the requests about users who log in by SCRAM; of a salted password only the size matters here."""

from __future__ import annotations

from typing import Any

from .asking import send
from .messages import request_named
from .notation import BadNotation, Command, Token, Value
from .runner import Run
from .words import options

SIZES = {2: 64}  # bytes of a salted password, by the mechanism's code; of any other 32


def alter(run: Run, command: Command) -> list[str] | None:
    """Perform `alter-users put $u 1 iterations=4096 salt=abcd size=32 ; rm name="" 2`. The numbers 1 and 2 are codes of
    mechanisms.
    """
    api = request_named("AlterUserScramCredentials")
    deletions, upsertions = [], []
    for part in _parts(command.tokens):
        words = [token for token in part if isinstance(token, str)]
        given, _ = options(
            [token for token in part if not isinstance(token, str)], {"iterations", "salt", "size", "name"}
        )
        if "name" in given:
            words.insert(1, str(given["name"]))
        verb, name, code = words if len(words) == 3 else ("", "", "")
        if verb not in ("put", "rm"):
            raise BadNotation("a change is `put $u 1` or `rm $u 1`")
        named: dict[str, Any] = {"name": run.names.text(name), "mechanism": int(code)}
        if verb == "rm":
            deletions.append(api.request.Deletion(**named))
        else:
            upsertions.append(api.request.Upsertion(**named, **_credential(given, int(code))))
    return send(run, command, api, 0, api.request(deletions=deletions, upsertions=upsertions))


def describe(run: Run, command: Command) -> list[str] | None:
    """Perform `describe-users $u $w`. With the word `none` it asks with an empty list, without any word with null.
    `only=/re/` filters the answer.
    """
    api = request_named("DescribeUserScramCredentials")
    words = [token for token in command.tokens if isinstance(token, str)]
    given, _ = options([token for token in command.tokens if not isinstance(token, str)], {"only"})
    names = [run.names.text(word) for word in words if word != "none"]
    users = [api.request.User(name=name) for name in names] if words else None
    return send(run, command, api, 0, api.request(users=users), only=given.get("only"))


def _parts(tokens: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token == ";":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def _credential(given: dict[str, Value], code: int) -> dict[str, Any]:
    size = int(str(given.get("size", SIZES.get(code, 32))))
    return {
        "iterations": int(str(given.get("iterations", "4096"))),
        "salt": bytes.fromhex(str(given.get("salt", "73616c74"))),
        "salted_password": b"p" * size,
    }
