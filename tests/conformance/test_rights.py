"""The matrix of rights: each user gets the answer that Apache Kafka gives such a user, except where
rights/differences.py says otherwise. For our own APIs, the expected answers are in rights/ours.txt.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fencepost.broker.requests.dispatch import AREAS, HANDLERS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from rights import differences  # noqa: E402
from rights.grants import rules  # noqa: E402
from rights.needed import needed  # noqa: E402
from rights.own_broker import own_broker  # noqa: E402
from rights.own_rows import OWN_ROWS, prepare_ledger  # noqa: E402
from rights.rows import ROWS as KAFKA_ROWS  # noqa: E402
from rights.rows import Row  # noqa: E402
from rights.share_rows import SHARE_ROWS  # noqa: E402
from rights.table import Answers, read  # noqa: E402
from rights.world import APIS_BY_NAME, World  # noqa: E402

for area in AREAS:
    importlib.import_module(f"fencepost.broker.handlers.{area}")

USERS = rules()
ROWS = [*KAFKA_ROWS, *SHARE_ROWS]
ANSWERS: Answers = read(HERE / "rights" / "kafka.txt", USERS) | read(HERE / "rights" / "ours.txt", USERS)
SERVED = {handler.api.name for handler in HANDLERS.values()}
CELLS = [(row, version) for row in ROWS if row.api in SERVED for version in row.versions]
OWN_CELLS = [(row, version) for row in OWN_ROWS for version in row.versions]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with own_broker() as world:
        yield world


@pytest.fixture(scope="module")
def own_world() -> Iterator[World]:
    with own_broker() as world:
        prepare_ledger(world)
        yield world


def parameters(cells: list[tuple[Row, int]]) -> list[Any]:
    return [pytest.param(*cell, id=f"{cell[0].name} v{cell[1]}") for cell in cells]


@pytest.mark.parametrize(("row", "version"), parameters(CELLS))
def test_each_request_needs_the_rights_that_kafka_needs_for_it(row: Row, version: int, world: World) -> None:
    check(row, version, world)


@pytest.mark.parametrize(("row", "version"), parameters(OWN_CELLS))
def test_each_request_of_fenceposts_own_apis_needs_the_rights_written_for_it(
    row: Row, version: int, own_world: World
) -> None:
    check(row, version, own_world)


def check(row: Row, version: int, world: World) -> None:
    name = f"{row.name} v{version}"
    assert name in ANSWERS, "of Kafka's APIs ask Kafka (README.md, Rights); of our own: make rights"
    expected: dict[str, Any] = ANSWERS[name]
    found = {what: row.ask(world, what, version) for what in USERS}
    differing = {what: (expected[what], answer) for what, answer in found.items() if answer != expected[what]}
    assert differing == differences.of(name, expected)


def test_the_security_page_lists_the_rights_that_each_api_needs() -> None:
    page = (HERE.parent.parent / "docs" / "security.md").read_text()
    reported: dict[str, set[str]] = {}
    for apis, text in re.findall(r"^\| ([A-Z]\w+(?:, [A-Z]\w+)*) \| (.*) \|$", page, re.MULTILINE):
        for api in apis.split(", "):
            reported[api] = set(re.findall(r"[A-Z]\w+ on (?:Topic|Group|Cluster|TransactionalId)\b", text))
    rows: dict[str, list[Row]] = {}
    for row in [*ROWS, *OWN_ROWS]:
        rows.setdefault(row.api, []).append(row)
    found = {api: needed(of_api, ANSWERS) for api, of_api in rows.items() if api != "ApiVersions"}
    assert {api: rights for api, rights in reported.items() if api in APIS_BY_NAME} == found


def test_every_served_api_has_a_row_in_the_rights_matrix() -> None:
    """For a new API: write its requests in rights/rows.py and record what Kafka answers (README.md, "Rights").

    The requests of an API that only fencepost has are in tests/support/brokers/own_apis.py or rights/own_rows.py; after
    a change of these run `make rights`.
    """
    assert SERVED - {row.api for row in [*ROWS, *OWN_ROWS]} == differences.NO_RIGHT_NEEDED.keys() & SERVED


def test_the_rights_matrix_has_the_newest_version_of_every_api() -> None:
    newest = {handler.api.name: handler.api.max for handler in HANDLERS.values()}
    cells = CELLS + OWN_CELLS
    for api in {row.api for row, _ in cells}:
        assert max(version for row, version in cells if row.api == api) >= newest[api], api


def test_the_rights_matrix_has_over_5000_cells_and_over_150_different_answers() -> None:
    assert len(CELLS) * len(USERS) > 5_000
    assert len({answer for by_user in ANSWERS.values() for answer in by_user.values()}) > 150
