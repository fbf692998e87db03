"""Random questions about ACLs (rules), and the answers of our authorizer and of Kafka's.

Each is a line of fields separated by tabs. `set` begins a new set of rules: it has the super users, and whether
everyone is allowed where no rule matches. `rule` adds a rule. The questions are `ask` (is an operation on one name
allowed?), `any` (is it allowed on any resource of a type?) and `filter` (how many rules does a filter match?).

    python deciding.py KAFKA_LIBS > decisions.tsv     # records; KAFKA_LIBS: the folder of Kafka's jars

Nothing is asked where we differ from Kafka 4.3.1 on purpose. There a literal rule for `*` does not match longer names
that begin with `*`, such as `*a`: a user who is denied everything need only name a group so. An address in a rule
matches there only as Java spells it, so a rule to deny ::1 denies nobody. And Kafka's authorizer fails for a client
named `*`.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from fencepost.broker.security.acls import AclBinding, AclFilter, Operation, PatternType, Permission, ResourceType
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.principals import parse_principal, parse_super_users, plain_host

HERE = Path(__file__).parent
TYPES = ["TOPIC", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]
PATTERNS = ["LITERAL", "PREFIXED"]
NAMES = ["a", "a", "ab", "abc", "abd", "b", "ba", "*", "hardcode", "hard"]
WHO = ["User:alice", "User:alice", "User:bob", "User:*", "Group:alice", "User:CN=x,O=y"]
HOSTS = ["*", "*", "10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1"]
ADDRESSES = ["10.0.0.1", "10.0.0.2", "::1", "::ffff:10.0.0.1"]
CLIENTS = [*(who for who in WHO if who != "User:*"), "User:root"]
OPERATIONS = [each.name for each in Operation if each >= Operation.ALL]
SOME = ["ALL", "READ", "WRITE", "DESCRIBE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]  # some include others


def questions(seed: int, sets: int, asked: int) -> Iterator[list[str]]:
    """Yield the lines of `sets` random sets of rules, each with `asked` questions `ask` and a fifth as many `any` and
    `filter`.
    """
    chance = random.Random(seed)
    one = chance.choice
    for _ in range(sets):
        yield ["set", one(["", "", "User:root", "User:bob;User:CN=x,O=y"]), one(["false", "false", "true"])]
        operations = one([SOME, SOME, OPERATIONS])
        rules = {
            (
                one(TYPES),
                one(PATTERNS),
                one(NAMES),
                one(WHO),
                one(HOSTS),
                one(operations),
                one(["ALLOW", "ALLOW", "DENY"]),
            )
            for _ in range(chance.randrange(13))
        }
        for rule in sorted(rules):
            yield ["rule", *rule]
        wanted = [each for each in operations if each != "ALL"]
        for _ in range(asked):
            who, host = one(CLIENTS), one(ADDRESSES)
            yield ["ask", who, host, one(wanted), one(TYPES), one([*NAMES, "abcd", "c"])]
        for _ in range(asked // 5):
            yield ["any", one(CLIENTS), one(ADDRESSES), one(["WRITE", "WRITE", *wanted]), one(TYPES)]
            named = [one(["ANY", *TYPES]), one(["ANY", "MATCH", *PATTERNS]), one(["null", *NAMES])]
            entry = [one(["null", *WHO]), one(["null", *HOSTS]), one(["ANY", "ANY", *operations])]
            yield ["filter", *named, *entry, one(["ANY", "ALLOW", "DENY"])]


def ours(lines: Iterable[list[str]]) -> Iterator[str]:
    """Yield our authorizer's answer to each question."""
    authorizer = Authorizer()
    for verb, *fields in lines:
        if verb == "set":
            everyone = fields[1] == "true"
            authorizer = Authorizer(parse_super_users(fields[0]), allow_everyone_if_no_acl=everyone)
        elif verb == "rule":
            authorizer.add(AclBinding(*_codes(*fields[:2]), *fields[2:5], *_said(*fields[5:])))  # type: ignore[arg-type]
        elif verb == "filter":
            rest = (None if field == "null" else field for field in fields[2:5])
            wanted = AclFilter(*_codes(*fields[:2]), *rest, *_said(*fields[5:]))  # type: ignore[arg-type]
            yield str(len(authorizer.find(wanted)))
        else:
            who, host, operation, kind, *name = fields
            asked = parse_principal(who), plain_host(host), Operation[operation], ResourceType[kind]
            yes = authorizer.allows(*asked, name[0]) if name else authorizer.allows_on_any(*asked)
            yield "yes" if yes else "no"


def _codes(kind: str, pattern: str) -> tuple[ResourceType, PatternType]:
    return ResourceType[kind], PatternType[pattern]


def _said(operation: str, permission: str) -> tuple[Operation, Permission]:
    return Operation[operation], Permission[permission]


def kafkas(lines: Iterable[list[str]], libraries: str) -> list[str]:
    """Return the answer of Kafka's StandardAuthorizer to each question. libraries: the folder with Kafka's jars."""
    command = ["java", "-cp", f"{libraries}/*", str(HERE / "Decisions.java")]
    text = "".join("\t".join(line) + "\n" for line in lines)
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.splitlines()


def is_question(line: list[str]) -> bool:
    return line[0] in ("ask", "any", "filter")


def main() -> None:
    lines = list(questions(seed=1, sets=60, asked=25))
    answers = iter(kafkas(lines, sys.argv[1]))
    for line in lines:
        print("\t".join([*line, next(answers)] if is_question(line) else line))


if __name__ == "__main__":
    main()
