"""What README and docs say is true: snippets run, commands exist, links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import broker_process

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text()
WRITTEN_WITH_THE_SITE = [ROOT / "docs" / name for name in ("errors.md", "cli-reference.md")]


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if fenced(each.read_text(), "python")], ids=lambda p: p.name
)
def test_every_python_snippet_runs_against_a_broker(document, tmp_path):
    if document.name == "faststream.md":
        pytest.importorskip("faststream")
    with broker_process(str(tmp_path / "data")) as broker:
        for snippet in fenced(document.read_text(), "python"):
            code = snippet.replace("127.0.0.1:9092", broker.bootstrap)
            done = subprocess.run(as_command(code, tmp_path), capture_output=True, text=True, timeout=60, cwd=tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr


def as_command(snippet: str, directory: Path) -> list[str]:
    """How a reader would run it: a test by pytest, anything else as a script."""
    if not re.search(r"^(async )?def test_", snippet, flags=re.MULTILINE):
        return [sys.executable, "-c", snippet]
    (directory / "test_snippet.py").write_text(snippet)
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_snippet.py"]


def test_there_are_snippets_where_users_look_for_them():
    for name in ("README.md", "docs/transactions.md"):
        assert fenced((ROOT / name).read_text(), "python"), name


def test_every_fencepost_command_of_the_readme_exists():
    commands = set(re.findall(r"`fencepost ((?:log |bench )?[a-z|\\]+)", README))
    assert commands
    for command in commands:
        words = command.replace("\\", "").split()
        for last in words[-1].split("|"):
            done = subprocess.run(
                [sys.executable, "-m", "fencepost", *words[:-1], last, "--help"], capture_output=True, text=True
            )
            assert done.returncode == 0, f"{command}: {done.stderr}"


def test_every_make_target_that_the_documents_name_exists():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for document in DOCUMENTS:
        named = re.findall(r"`make ([a-z0-9 -]+)", document.read_text()) + re.findall(
            r"^\$ make ([a-z0-9 -]+?)(?: *#.*)?$", document.read_text(), flags=re.MULTILINE
        )
        for words in named:
            assert set(words.split()) <= targets, f"{document.name}: make {words}"


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
def test_a_word_of_our_own_is_in_the_glossary_that_its_module_names(word):
    module = (ROOT / OWNERS[word]).read_text()
    assert re.search(rf"^\| {word} \|", (ROOT / "docs" / "glossary.md").read_text(), flags=re.MULTILINE)
    assert "docs/glossary.md" in module.split('"""')[1], f"the docstring of {OWNERS[word]}"


@pytest.mark.requirement("S-92")
def test_where_the_guarantee_ends_is_reported():
    text = " ".join((ROOT / "docs" / "guarantees.md").read_text().split())
    assert "**Not guaranteed:**" in text
    assert "effects outside of the broker" in text
    assert "must make that write idempotent" in text


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        if not target.startswith("http") and (document.parent / target).resolve() not in WRITTEN_WITH_THE_SITE:
            assert (document.parent / target).exists(), target
