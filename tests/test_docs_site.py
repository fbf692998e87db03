"""The site: tutorial and how-tos do what they say, generated pages are complete, nobody else is asked for anything."""

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import broker_process
from eventually import wait_until
from fencepost.protocol.errors import ErrorCode
from java_clients import CLASS_PATH

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
BIN = Path(sys.executable).parent
AFTER_S = 90


@pytest.fixture(scope="module")
def pages():
    sys.path.insert(0, str(DOCS / "site"))
    try:
        yield importlib.import_module("pages")
    finally:
        sys.path.remove(str(DOCS / "site"))


def titled(page: str) -> dict[str, str]:
    """Return the files that a page has its reader save, by name."""
    text = (DOCS / page).read_text()
    return dict(re.findall(r'^```\w+ title="([\w.]+)"\n(.*?)^```', text, re.M | re.S))


# ---- pages -------------------------------------------------------------------------------------------------------


def test_every_error_code_that_the_broker_sends_has_an_advice(pages):
    advised = pages.advice()
    assert advised.keys() <= set(ErrorCode.__members__)
    missing = pages.sent_codes() - advised.keys()
    assert not missing, "docs/site/error_advice.toml says what to do about each code that is sent"


def test_every_error_code_has_exactly_one_entry_on_the_error_page(pages):
    page = pages.errors_page()
    for code in ErrorCode:
        assert len(re.findall(rf"^(?:## |\| ){code.name} \({int(code)}\)", page, re.M)) == 1, code.name


@pytest.mark.parametrize("name", ["settings.md", "metrics.md", "sdk-reference.md", "errors.md", "compatibility.md"])
def test_each_page_of_the_docs_that_is_generated_from_the_code_is_up_to_date(pages, name):
    assert (DOCS / name).read_text() == pages.GENERATED[name](), "make generated"


def test_make_generated_writes_the_pages_that_have_changed(pages, tmp_path, monkeypatch, capsys):
    for name in pages.GENERATED:
        (tmp_path / name).write_text((DOCS / name).read_text())
    for name in ("errors.md", "compatibility.md"):
        old = (DOCS / name).read_text()
        (tmp_path / name).write_text(old[: -len("0 |\n")])
    monkeypatch.setattr(pages, "DOCS", tmp_path)
    (tmp_path / "site").symlink_to(DOCS / "site")
    pages.write_generated()
    assert capsys.readouterr().out == "docs/errors.md\ndocs/compatibility.md\n"
    assert all((tmp_path / name).read_text() == (DOCS / name).read_text() for name in pages.GENERATED)


def test_every_command_is_in_the_reference(pages):
    page = pages.commands_page()
    for name in ("serve", "topic create", "txn why-blocked", "backup", "restore", "log verify", "bench txn"):
        assert f"\n## fencepost {name}\n" in page
    assert "| `--data-dir DIR` |" in page


def test_the_compatibility_page_counts_passed_and_failed_tests_per_client(pages, tmp_path):
    results = tmp_path / "results.xml"
    results.write_text(
        "<testsuites><testsuite>"
        '<testcase classname="tests.interop.test_groups" name="test_aiokafka_members[range]"/>'
        '<testcase classname="tests.interop.test_groups" name="test_aiokafka_members[sticky]"/>'
        '<testcase classname="tests.interop.test_groups" name="test_kafka_python_members"><failure/></testcase>'
        '<testcase classname="tests.interop.test_kafka_python" name="test_codec[gzip]"/>'
        '<testcase classname="tests.interop.test_kcat" name="test_lines_go_in[gzip]"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    (row,) = re.findall(r"^\| consumer groups .*", pages.compatibility_page(str(results)), re.M)
    assert [cell.strip() for cell in row.split("|")] == ["", "consumer groups", "2", "0 ✘ 1", ""]


def test_each_row_and_client_of_the_compatibility_page_matches_a_test(pages):
    names = [
        f"tests.interop.{path.stem}.{line}"
        for path in (ROOT / "tests" / "interop").glob("test_*.py")
        for line in path.read_text().splitlines()
    ]
    patterns = [*pages.AREAS.values(), *(client.pattern for client in pages.CLIENTS)]
    assert not [each for each in patterns if not any(re.search(each, name) for name in names)]


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_no_other_host(tmp_path):
    pytest.importorskip("material", reason="the extra docs is not installed")
    mkdocs = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        mkdocs, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    built = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.html")}
    assert {"index.html", "errors.html", "cli-reference.html", "explanation/journal.html"} <= built
    for path in tmp_path.rglob("*.html"):
        loads = re.findall(
            r"<(?:script|link|img|iframe)[^>]*(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)", path.read_text()
        )
        assert not loads, path.name
    for path in tmp_path.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", path.read_text()), path.name


# ---- the tutorial ------------------------------------------------------------------------------------------------


def shell(line: str, directory: Path, bootstrap: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-c", line],
        cwd=directory,
        env=os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "FENCEPOST_BOOTSTRAP": bootstrap},
        capture_output=True,
        text=True,
        timeout=AFTER_S,
    )


@pytest.mark.slow
def test_the_tutorial_prints_the_output_it_shows(tmp_path):
    text = (DOCS / "tutorial.md").read_text()
    steps = [step for session in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S) for step in typed(session)]
    assert steps[0] == ("pip install fencepost", "")
    with broker_process(str(tmp_path / "data")) as broker:
        for name, code in titled("tutorial.md").items():
            (tmp_path / name).write_text(code.replace("127.0.0.1:9092", broker.bootstrap))
        for line, printed in steps[1:]:
            done = shell(line, tmp_path, broker.bootstrap)
            assert done.returncode == (1 if "--crash" in line else 0), (line, done.stderr)
            assert alike(done.stdout) == alike(printed), line


def typed(session: str) -> list[tuple[str, str]]:
    """(what is typed, what is printed)."""
    parts = re.split(r"^\$ (.*)\n", session, flags=re.M)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def alike(printed: str) -> list[str]:
    """Return its lines, without producer ids, times, and the number of spaces."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    lines = [re.sub(r"\b\d+:(\d+)\b", r"P:\1", line) for line in lines]
    return [re.sub(r"of producer \d+ (.*) for .*", r"of producer P \1", line) for line in lines]


# ---- how-tos -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_faststream_example_of_the_docs_writes_an_invoice_for_an_order(tmp_path):
    pytest.importorskip("faststream")
    with broker_process(str(tmp_path / "data")) as broker:
        code = titled("how-to/faststream.md")["app.py"].replace("127.0.0.1:9092", broker.bootstrap)
        (tmp_path / "app.py").write_text(code)
        program = "import asyncio, app; asyncio.run(app.app.run())"
        running = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.DEVNULL)
        try:
            read = f"fencepost consume invoices --from start -n 1 --timeout {AFTER_S - 30}s"
            wait_until(lambda: shell("fencepost topic describe invoices", tmp_path, broker.bootstrap).returncode == 0)
            assert shell(read, tmp_path, broker.bootstrap).stdout == "invoice for order 42\n"
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(AFTER_S)


@pytest.mark.long
@pytest.mark.skipif(not CLASS_PATH.exists(), reason="make java-clients has resolved no Kafka Streams")
def test_the_application_of_kafka_streams_counts_words_exactly_once(tmp_path):
    jars = CLASS_PATH.read_text().strip()
    if "kafka-streams" not in jars:
        pytest.skip("make java-clients has resolved no Kafka Streams")
    (tmp_path / "Count.java").write_text(titled("how-to/kafka-streams.md")["Count.java"])
    with broker_process(str(tmp_path / "data")) as broker:
        for line in (
            "fencepost topic create words",
            "fencepost topic create counts",
            "seq 3 | fencepost produce words",
        ):
            assert shell(line, tmp_path, broker.bootstrap).returncode == 0
        words = ["java", "-Xmx256m", "-cp", jars, "Count.java", broker.bootstrap, str(tmp_path / "state")]
        running = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
        try:
            read = f"fencepost consume counts --from start -n 3 -f '%k %s\\n' --timeout {AFTER_S - 30}s"
            assert sorted(shell(read, tmp_path, broker.bootstrap).stdout.splitlines()) == ["1 1", "2 1", "3 1"]
            found = shell("fencepost txn list --all -o json", tmp_path, broker.bootstrap).stdout
            assert "CompleteCommit" in found
        finally:
            running.terminate()
            running.wait(AFTER_S)
