"""Short forms of the requests about rules of access: words of Kafka's in the place of codes."""

from __future__ import annotations

from typing import Any

from fencepost.broker.security import acls

from .asking import send
from .messages import request_named
from .notation import BadNotation, Command, Token
from .runner import Run
from .words import options, text

ANY = "Any"


def create(run: Run, command: Command) -> list[str] | None:
    """Perform `create-acls v=3 allow User:$u Read Topic $t ; deny User:* All Group $g prefixed host=10.0.0.1`."""
    version, parts = _version(command.tokens)
    api = request_named("CreateAcls")
    request = api.request(creations=[_creation(run, api.request.Creation, part) for part in parts])
    return send(run, command, api, version, request)


def describe(run: Run, command: Command) -> list[str] | None:
    """Perform `describe-acls v=3 type=Topic pattern=Match name=$t principal=User:$u`."""
    version, parts = _version(command.tokens)
    api = request_named("DescribeAcls")
    return send(run, command, api, version, _filter(run, api.request, parts[0] if parts else []))


def delete(run: Run, command: Command) -> list[str] | None:
    """Perform `delete-acls v=3 principal=User:$u ; principal=User:$w`."""
    version, parts = _version(command.tokens)
    api = request_named("DeleteAcls")
    request = api.request(filters=[_filter(run, api.request.Filter, part) for part in parts])
    return send(run, command, api, version, request)


def _version(tokens: list[Token]) -> tuple[int, list[list[Token]]]:
    """Return the version, and the other words as a list for each part between `;`."""
    given, _ = options([token for token in tokens if _is_version(token)], {"v"})
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token == ";":
            parts.append([])
        elif not _is_version(token):
            parts[-1].append(token)
    return int(str(given.get("v", "3"))), parts if parts != [[]] else []


def _is_version(token: Token) -> bool:
    return not isinstance(token, str) and token.name == "v"


def _creation(run: Run, made: Any, tokens: list[Token]) -> Any:
    words = [token for token in tokens if isinstance(token, str)]
    pairs = [token for token in tokens if not isinstance(token, str)]
    given, _ = options(pairs, {"host", "pattern", "principal", "name"}, strict=True)
    if words[-1] == "prefixed":
        given["pattern"] = words.pop()
    if "principal" in given:
        words.insert(1, str(given["principal"]))
    if "name" in given:
        words.append(str(given["name"]))
    if len(words) != 5:
        raise BadNotation("a rule is `allow User:$u Read Topic $t`, with prefixed, pattern= and host=")
    permission, principal, operation, kind, name = words
    return made(
        resource_type=_code(acls.ResourceType, kind),
        resource_pattern_type=_code(acls.PatternType, str(given.get("pattern", "Literal"))),
        resource_name=run.names.text(name),
        principal=run.names.text(principal),
        host=str(given.get("host", "*")),
        operation=_code(acls.Operation, operation),
        permission_type=_code(acls.Permission, permission),
    )


def _filter(run: Run, made: Any, tokens: list[Token]) -> Any:
    known = {"type", "pattern", "name", "principal", "host", "operation", "permission"}
    given, _ = options(tokens, known, strict=True)
    return made(
        resource_type_filter=_code(acls.ResourceType, str(given.get("type", ANY))),
        pattern_type_filter=_code(acls.PatternType, str(given.get("pattern", ANY))),
        resource_name_filter=text(run, given.get("name")),
        principal_filter=text(run, given.get("principal")),
        host_filter=text(run, given.get("host")),
        operation=_code(acls.Operation, str(given.get("operation", ANY))),
        permission_type=_code(acls.Permission, str(given.get("permission", ANY))),
    )


def _code(codes: type[acls.Code], word: str) -> int:
    """Return the code of a word such as `TransactionalId` or `transactional_id`; a number stands for itself."""
    if word.isdecimal():
        return int(word)
    for each in codes:
        if each.name.replace("_", "") == word.replace("_", "").upper():
            return int(each)
    raise BadNotation(f"{word} is no {codes.__name__}")
