"""What README and docs say is true: snippets run, commands exist, links lead somewhere."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import broker_process
from click.testing import CliRunner
from fencepost.broker.config.configuration import broker_settings
from fencepost.cli import main

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


RUN_ELSEWHERE = ["database.md"]  # by tests/client/sql/test_how_to_database.py, which has a PostgreSQL


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "document",
    [each for each in DOCUMENTS if fenced(each.read_text(), "python") and each.name not in RUN_ELSEWHERE],
    ids=lambda p: p.name,
)
def test_every_python_snippet_runs_against_a_broker(document, tmp_path):
    if document.name == "faststream.md":
        pytest.importorskip("faststream")
    with broker_process(str(tmp_path / "data")) as broker:
        snippets = [each.replace("127.0.0.1:9092", broker.bootstrap) for each in fenced(document.read_text(), "python")]
        for command in as_commands(snippets, tmp_path):
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr


RUN_EACH = """
import json, sys
for number, snippet in enumerate(json.loads(sys.argv[1])):
    exec(compile(snippet, f"snippet {number}", "exec"), {"__name__": "__main__"})
"""


PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"]


def as_commands(snippets: list[str], directory: Path) -> Iterator[list[str]]:
    """How a reader would run them: tests by pytest, anything else as a script. One process for all scripts, and one for
    all files of tests but those with a fixture of the session, which may set what the plugin does.
    """
    tests = [each for each in snippets if re.search(r"^(async )?def test_", each, flags=re.MULTILINE)]
    scripts = [each for each in snippets if each not in tests]
    if scripts:
        yield [sys.executable, "-c", RUN_EACH, json.dumps(scripts)]
    together = []
    for number, test in enumerate(tests):
        path = directory / f"test_snippet_{number}.py"
        path.write_text(test)
        if 'scope="session"' in test:
            yield [*PYTEST, path.name]
        else:
            together.append(path.name)
    if together:
        yield [*PYTEST, *together]


def test_readme_and_transactions_page_contain_python_snippets():
    for name in ("README.md", "docs/transactions.md"):
        assert fenced((ROOT / name).read_text(), "python"), name


def test_every_fencepost_command_of_the_readme_exists():
    commands = set(re.findall(r"`fencepost ((?:log |bench )?[a-z|\\-]+)", README))
    assert commands
    for command in commands:
        words = command.replace("\\", "").split()
        for last in words[-1].split("|"):
            done = CliRunner().invoke(main, [*words[:-1], last, "--help"])
            assert done.exit_code == 0, f"{command}: {done.output}"


def test_every_make_target_that_the_documents_name_exists():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for document in DOCUMENTS:
        named = re.findall(r"`make ([a-z0-9 -]+)", document.read_text()) + re.findall(
            r"^\$ make ([a-z0-9 -]+?)(?: *#.*)?$", document.read_text(), flags=re.MULTILINE
        )
        for words in named:
            assert set(words.split()) <= targets, f"{document.name}: make {words}"


def test_no_two_decisions_have_the_same_number():
    numbers = [path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")]
    assert len(numbers) > 30
    assert not {number for number in numbers if numbers.count(number) > 1}


OWNERS = {  # of words that mean something of their own here
    "unit": "storage/journal/format.py",
    "seal": "storage/journal/format.py",
    "round": "broker/rounds.py",
    "released": "broker/rounds.py",
    "tail": "storage/log/partition_log.py",
    "evidence": "storage/log/opening.py",
    "debt": "broker/transactions/unit.py",
    "ledger": "broker/transactions/ledger.py",
    "fence": "broker/transactions/fence.py",
}


@pytest.mark.parametrize("word", OWNERS)
def test_each_term_is_in_the_glossary_and_its_module_refers_to_the_glossary(word):
    module = (ROOT / OWNERS[word]).read_text()
    assert re.search(rf"^\| {word} \|", (ROOT / "docs" / "glossary.md").read_text(), flags=re.MULTILINE)
    assert "docs/glossary.md" in module.split('"""')[1], f"the docstring of {OWNERS[word]}"


def test_the_sample_settings_file_in_the_docs_is_accepted():
    (sample,) = fenced((ROOT / "docs" / "deploy.md").read_text(), "toml")
    settings, warnings = broker_settings({}, {}, tomllib.loads(sample))
    assert warnings == []
    assert settings.num_partitions == 6
    assert settings.ssl_keystore_location == "/etc/fencepost/broker.pem"


def test_every_metric_in_the_sample_of_the_deploy_page_is_on_the_metrics_page():
    (sample,) = re.findall(
        r"^```text\n((?:kafka_|fencepost_).*?)^```", (ROOT / "docs" / "deploy.md").read_text(), re.M | re.S
    )
    listed = (ROOT / "docs" / "metrics.md").read_text()
    for name in re.findall(r"^\w+", sample, re.M):
        assert f"| `{name}` |" in listed, name


@pytest.mark.requirement("S-92")
def test_the_guarantees_page_states_what_is_not_guaranteed():
    text = " ".join((ROOT / "docs" / "guarantees.md").read_text().split())
    assert "**Not guaranteed:**" in text
    assert "effects outside of the broker" in text
    assert "must make that write idempotent" in text


# ---- as a forge renders it: from the files of the repository, without what the site adds ----------------------------


def prose(document: Path) -> str:
    """Return the document without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(document: Path) -> set[str]:
    """Return the anchors that a forge gives the headings: lower case, spaces as hyphens, most punctuation dropped."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.*)", prose(document), flags=re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        found.add(slug if slug not in found else f"{slug}-1")
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_leads_to_an_existing_file_and_heading(document):
    for file, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose(document)):
        if file.startswith("http"):
            continue
        target = (document.parent / file).resolve() if file else document
        assert target.exists(), f"{file}: no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{file}#{anchor}: no such heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_image_of_a_page_is_a_file_of_the_repository(document):
    for file in re.findall(r'(?:src|srcset)="([^"]+)"', prose(document)):
        assert (document.parent / file).exists(), file


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_row_of_a_table_stands_below_a_head(document):
    """A blank line within a table ends it: the rows below are shown as plain text."""
    lines = prose(document).splitlines()
    for number, line in enumerate(lines):
        if line.startswith("|") and not (number and lines[number - 1].startswith("|")):
            below = lines[number + 1] if number + 1 < len(lines) else ""
            assert re.fullmatch(r"\|[ :|-]+\|?", below), f"no head: {line[:60]}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_row_of_a_table_has_as_many_cells_as_its_head(document):
    """A row with fewer looks right in some renderings, and its last cells are empty without anybody's intent."""
    cells, wrong = 0, []
    lines = prose(document).splitlines()
    for line, above in zip(lines, ["", *lines], strict=False):
        if line.startswith("|"):
            found = len(re.split(r"(?<!\\)\|", line.rstrip())) - 2
            cells = cells if above.startswith("|") else found
            wrong += [line[:60]] if found != cells else []
    assert not wrong


@pytest.mark.parametrize("name", ["README.md", "docs/on-call.md"])
def test_no_word_is_so_long_that_a_table_is_wider_than_the_page(name):
    """A code host shows a page 830 pixels wide and scrolls what is wider: the last column, which says what to do, was
    cut off.
    """
    rows = [line for line in prose(ROOT / name).splitlines() if line.startswith("|") and "---" not in line]
    shown = [re.sub(r"\]\([^)]*\)", "]", row) for row in rows]
    assert not [word for row in shown for word in re.split(r"[\s|]+", row) if len(word) > 30]


def test_the_readme_badges_agree_with_pyproject():
    """They are files of the repository: a badge from a service would need a network."""
    assert f">{VERSION}</text>" in (ROOT / "docs" / "images" / "version.svg").read_text()
    assert f'alt="version {VERSION}"' in README
    assert ">Apache-2.0</text>" in (ROOT / "docs" / "images" / "license.svg").read_text()
