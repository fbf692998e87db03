"""Generates pages of the documentation: errors, commands, decisions, and what clients were tested with.

    python docs/site/pages.py RESULTS.xml     docs/compatibility.md, of what pytest --junitxml has written
    python docs/site/pages.py --generated     every page of docs/ that is made of the code (`make generated`)

The others are made when the site is built (hooks.py). `make compatibility` runs the tests and writes
docs/compatibility.md: what a version was tested with is a fact of its day.
"""

import platform
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import click
from fencepost.broker.config import settings_page
from fencepost.broker.requests.dispatch import load_handlers
from fencepost.cli import main
from fencepost.cli.generate import metrics_page
from fencepost.client.errors import error_of
from fencepost.client.reference import page as reference_page
from fencepost.protocol.errors import ErrorCode

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SENDERS = ("broker", "storage", "protocol")

# ---- errors -----------------------------------------------------------------------------------------------------

ERRORS = """\
# Errors

Every error code of the protocol: what it says, and what to do about it. *Retriable*: a client may send the same request
again. The class is that of [the SDK](sdk.md#when-something-goes-wrong), which in a transaction raises
`AbortableTransactionError` for errors after which the transaction can be aborted and repeated. Whether the request may
have been carried out all the same: [guarantees](guarantees.md#after-an-error-may-it-have-been-written).
"""
NEVER_SENT = """\
## Codes that fencepost never sends

They belong to what one broker has no use for (replication, controllers, delegation tokens, tiered storage), or to
groups of kinds that it does not serve. Other Kafka brokers may send them.
"""


def sent_codes() -> set[str]:
    """Return the names of the error codes that the broker's code mentions."""
    found: set[str] = set()
    for folder in SENDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if path != ROOT / "protocol" / "errors.py":
                found |= set(re.findall(r"\bErrorCode\.([A-Z][A-Z0-9_]+)", path.read_text()))
    return found


def advice() -> dict[str, str]:
    """Return what a user should do, by the name of the error code."""
    return tomllib.loads((DOCS / "site" / "error_advice.toml").read_text())


def errors_page() -> str:
    """Return the page of error codes: those with advice in full, then a table of the others."""
    advised = advice()
    parts = [ERRORS]
    others = ["| code | meaning |", "|---|---|"]
    for code in ErrorCode:
        if code.name not in advised:
            others.append(f"| {code.name} ({int(code)}) | {code.text} |")
            continue
        retriable = "retriable" if code.retriable else "not retriable"
        cls = "" if code is ErrorCode.NONE else f" · `{type(error_of(code)).__name__}`"
        parts.append(f"## {code.name} ({int(code)})\n")
        parts.append(f"{code.text} *{retriable}*{cls}\n\n{advised[code.name]}\n")
    return "\n".join([*parts, NEVER_SENT, *others]) + "\n"


# ---- commands ---------------------------------------------------------------------------------------------------

COMMANDS = """\
# Commands

Every command with its options, as `--help` shows them. What they are for, exit codes and examples:
[the command line](cli.md).
"""


def commands_page() -> str:
    """Return the page of all commands with usage, help and options."""
    parts = [COMMANDS]
    for name, command, ctx in _commands(main, click.Context(main, info_name="fencepost"), "fencepost"):
        usage = command.get_usage(ctx).removeprefix("Usage: ")
        parts.append(f"## {name}\n\n```text\n{usage}\n```\n\n{_prose(command.help or '')}\n")
        rows = [_option(each, ctx) for each in command.params if isinstance(each, click.Option) and not each.hidden]
        if rows:
            parts.append("\n".join(["| option | |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _commands(
    group: click.Group, ctx: click.Context, prefix: str
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield (full name, command, its context) of each command, those of subgroups included."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=ctx)
        if isinstance(command, click.Group):
            yield from _commands(command, inner, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command, inner


def _prose(text: str) -> str:
    """Return a help text with each of its paragraphs on one line."""
    paragraphs = [" ".join(each.replace("\b", "").split()) for each in text.split("\f")[0].split("\n\n")]
    return "\n\n".join(_escape(each) for each in paragraphs if each)


def _option(option: click.Option, ctx: click.Context) -> str:
    """Return the table row of one option."""
    names, what = option.get_help_record(ctx) or (", ".join(option.opts), "")
    return f"| `{names}` | {_escape(' '.join(what.split()))} |"


def _escape(text: str) -> str:
    """Escape what Markdown or HTML would interpret, except within code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(each if number % 2 else _as_entities(each) for number, each in enumerate(pieces))


def _as_entities(text: str) -> str:
    """Replace characters that Markdown or HTML would interpret by entities."""
    return re.sub(r"[<>*_|&]", lambda found: f"&#{ord(found[0])};", text)


# ---- decisions --------------------------------------------------------------------------------------------------


def decisions_page() -> str:
    """Return the page that lists the decisions."""
    found = sorted((DOCS / "decisions").glob("*.md"))
    titles = [path.read_text().split("\n", 1)[0].removeprefix("# ") for path in found]
    rows = [f"- [{title}](decisions/{path.name})" for title, path in zip(titles, found, strict=True)]
    return "# Decisions\n\nEach with its context, and what follows from it.\n\n" + "\n".join(rows) + "\n"


# ---- what clients were tested with ------------------------------------------------------------------------------


class Client(NamedTuple):
    """A column of the compatibility page. package: whose version it shows. pattern: a regular expression for the names
    of its tests.
    """

    name: str
    package: str
    pattern: str


CLIENTS = [
    Client("fencepost's SDK", "fencepost", r"test_sdk_"),
    Client("confluent-kafka", "confluent-kafka", r"confluent|[Ll]ibrdkafka"),
    Client("aiokafka", "aiokafka", r"aiokafka"),
    Client("kafka-python", "kafka-python", r"kafka[-_]python|KafkaPython"),
    Client("Java", "kafka-clients", r"java"),
    Client("kcat", "kcat", r"kcat"),
]
AREAS = {  # row: which tests, by file and name
    "records in every codec, plain and idempotent": r"every_codec|kcat_reads_back",
    "topics, configurations, errors": r"and_deletes_topics|refused_admin_call|kcats_metadata|_quorum_|config_resources",
    "offsets and timestamps": r"test_offsets|offset_or_timestamp|by_timestamp|offset_beyond|up_to_an_offset",
    "consumer groups": r"test_groups|test_sdk_groups|test_consumer_groups|test_group_migration|test_assignors",
    "share groups": r"test_share_groups|test_share_tools|share_group_test",
    "transactions, with offsets and fencing": r"test_transactions|test_java_tv2|refused_versions|committed_only",
    "late requests of old connections": r"test_fence_races",
    "bad networks": r"test_fence_weather",
    "the broker killed meanwhile": r"test_restarts",
    "transactions ended by an operator": r"test_operators",
    "rules of access, users, logins, quotas": r"test_acls|test_users|test_logins|test_rights|test_quotas",
    "all others": r"",
}
COMPATIBILITY = """\
# Compatibility

Which clients do what with this version, by tests that ran: `make compatibility` runs `tests/interop` and writes this
page. A number is how many tests of the client passed; ✘ has failures beside it; – is for no test. A client without a
test may work: the protocol is Kafka's. The SDK is here only beside other clients; its own tests are in `tests/client`.
"""
API_ROWS = """\
## Versions of the APIs

| key | API | versions |
|---|---|---|
"""


def compatibility_page(results: str) -> str:
    """Return the page of how many tests passed, by area and client. results: the path of a junit file."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        area = next(area for area, pattern in AREAS.items() if re.search(pattern, name))
        outcome = next((each for each in ("failure", "error", "skipped") if case.find(each) is not None), "passed")
        for client in CLIENTS:
            if re.search(client.pattern, name):
                counts.setdefault((area, client.name), Counter())[outcome] += 1
    clients = [each for each in CLIENTS if any(counts.get((area, each.name), Counter())["passed"] for area in AREAS)]
    heads = [f"{client.name} {_version(client.package)}".strip() for client in clients]
    rows = [f"| | {' | '.join(heads)} |", "|---" * (len(clients) + 1) + "|"]
    for area in AREAS:
        cells = [_cell(counts.get((area, client.name), Counter())) for client in clients]
        if any(cell != "–" for cell in cells):
            rows.append(f"| {area} | {' | '.join(cells)} |")
    system = f"{platform.system()} {platform.machine()}"
    where = f"fencepost {version('fencepost')}, Python {platform.python_version()}, {system}."
    return f"{COMPATIBILITY}\n{where}\n\n" + "\n".join(rows) + f"\n\n{api_versions()}"


def api_versions() -> str:
    """Return the end of the compatibility page, which needs no test results: the API versions that the
    broker serves.
    """
    served = (handler.api for handler in load_handlers().values())
    apis = [f"| {api.key} | {api.name} | {_range(api)} |" for api in sorted(served, key=lambda api: int(api.key))]
    return API_ROWS + "\n".join(apis) + "\n"


def _cell(found: Counter[str]) -> str:
    """Return a cell: how many tests passed, and how many failed if any; a dash if none ran."""
    wrong = found["failure"] + found["error"]
    if wrong:
        return f"{found['passed']} ✘ {wrong}"
    return str(found["passed"]) if found["passed"] else "–"


def _range(api: Any) -> str:
    """Return an API's versions as text."""
    return str(api.min) if api.min == api.max else f"{api.min} to {api.max}"


def _version(package: str) -> str:
    """Return the version of a client that was tested; empty if it is not installed."""
    if package == "kafka-clients":
        pom = (ROOT / "tests" / "interop" / "java" / "pom.xml").read_text()
        found = re.search(r"<version>(\d+\.\d+\.\d+)</version>", pom)
        return found[1] if found else ""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


# ---- pages that are generated and committed, since other pages link to them and a forge shows them --------------


def _with_api_versions() -> str:
    """Return the compatibility page with the API versions of now, and the test results that it has."""
    return (DOCS / "compatibility.md").read_text().partition(API_ROWS)[0] + api_versions()


GENERATED: dict[str, Callable[[], str]] = {
    "settings.md": settings_page.page,
    "metrics.md": metrics_page.page,
    "sdk-reference.md": reference_page.page,
    "errors.md": errors_page,
    "compatibility.md": _with_api_versions,
}


def write_generated() -> None:
    """Write each of these pages that has changed, and print its name."""
    for name, page in GENERATED.items():
        path, text = DOCS / name, page()
        if path.read_text() != text:
            path.write_text(text)
            print(f"docs/{name}")


if __name__ == "__main__":
    if sys.argv[1] == "--generated":
        write_generated()
    else:
        (DOCS / "compatibility.md").write_text(compatibility_page(sys.argv[1]))
