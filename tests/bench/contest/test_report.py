"""The reports of a run: files, a table, and the text between the markers in documents. The run is made up."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fencepost.bench import result_file
from fencepost.bench.contest import report
from fencepost.bench.contest.aims import AIMS, judge
from fencepost.bench.contest.report import BEGIN, END, NoMarkers, between, table, write, write_documents
from fencepost.bench.peers.names import FSYNC, KAFKA, KAFKA_FLUSH
from made_findings import FACTS, made_result, rates

RESULT = made_result()


def row(text: str, start: str) -> list[str]:
    """Return the cells of the first row of a table whose text begins with `start`."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_a_run_is_written_as_json_table_and_plots(tmp_path: Path) -> None:
    path = write(RESULT.findings, RESULT.verdicts, FACTS, tmp_path / "results")
    assert result_file.read(path) == RESULT
    assert (path.parent / "table.md").read_text() == table(RESULT)
    assert (path.parent / "speed.dark.svg").exists()


def test_two_runs_that_end_in_one_second_have_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("time.strftime", lambda form: "now")
    names = [write(RESULT.findings, RESULT.verdicts, FACTS, tmp_path).name for _ in range(3)]
    assert names == ["now.json", "now-2.json", "now-3.json"]


def test_without_matplotlib_one_line_reports_that_no_plots_were_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    write(RESULT.findings, RESULT.verdicts, FACTS, tmp_path)
    assert "matplotlib" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.svg"))


def test_the_table_shows_the_ratio_and_outcome_of_each_aim() -> None:
    text = table(RESULT)
    run = {each.scenario for each in RESULT.findings}
    for aim in AIMS:
        # A bound of a load that was not run has no row; the line below the table counts these.
        assert aim.row in text or (aim.scenario not in run and aim.theirs not in (KAFKA, KAFKA_FLUSH))
    _, fsync, flush, os, p99 = row(text, "1 × 100 B, 64 connections: requests/s")
    assert fsync == "○ **0.90** [0.83, 0.97] ≥ 1"
    assert flush == "✔ **7.50** [7.50, 7.50] ≥ 6"
    assert os == "✔ **1.60** \\* [1.48, 1.73] ≥ 1.4"
    assert p99 == "6.24 / 3.84 · 4.80 / 13.0"
    assert row(text, "transactions/s, 1 producer")[1].startswith("? ")
    assert row(text, "idempotent librdkafka, 1 KB")[1].startswith("✘ ")
    assert row(text, "batches of 100 KB")[1].startswith("○ ")
    assert row(text, "bare C server, 64")[1] == "✔ **1.68** \\* [1.68, 1.68] ≤ 1.8"
    assert "\n\nAbsent: bare C server, 16 connections × 5: CPU per request; os ÷ mock, 64 connections" in text
    unmeasured = {aim.row for aim in AIMS if aim.scenario not in run and aim.theirs not in (KAFKA, KAFKA_FLUSH)}
    assert f"\n\n{len(unmeasured)} more bounds are of loads that were not run.\n" in text
    assert row(text, "ready after start")[2:4] == ["–", "–"]


def test_the_report_marks_saturated_clients_cold_peers_and_a_higher_p99() -> None:
    cold = replace(rates("small 64x1", KAFKA, 1.0, p99_ms=[2.0]), warm=False)
    found = (replace(rates("small 64x1", FSYNC, 1.0, p99_ms=[3.0]), saturated=True, others_cpu=0.034), cold)
    text = report.remarks(result_file.Result(FACTS, found, tuple(judge(found))))
    assert "The client was the limit, not the broker. fencepost fsync: small 64x1." in text
    assert "† Not yet steady at the end of the warm-up. Kafka: small 64x1." in text
    assert "The p99 of fencepost is higher. fencepost fsync against Kafka: small 64x1." in text
    assert "3.4 % of a processor" in text
    found_row = row(
        report.aims(result_file.Result(FACTS, found, tuple(judge(found)))), "1 × 100 B, 64 connections: req"
    )
    assert found_row[1] == "? **1.00** \\* † [1.00, 1.00] ≥ 1"


def test_the_report_table_has_a_row_for_the_p99_of_a_load_with_its_spread() -> None:
    found = row(table(RESULT), "1 × 100 B, 64 connections: p99")
    assert found[1] == "○ **1.30** [1.30, 1.30] ≤ 1.2"
    assert found[3] == "✔ **0.80** \\* [0.80, 0.80] ≤ 1.2"
    measured = row(report.values(RESULT), "small 64x1 | Kafka |")
    assert measured[7:9] == ["4.80 [4.61, 4.99]", "24.0"]


def test_a_run_without_measurements_still_gives_a_table() -> None:
    assert "absent" in table(result_file.Result(FACTS, (), tuple(judge([]))))
    assert table(result_file.Result({}, (), ()))


def test_writing_the_documents_changes_only_text_between_their_markers(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/benchmarks.md"):
        (tmp_path / name).write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    paths = write_documents(RESULT, tmp_path)
    readme, docs = ((tmp_path / name).read_text() for name in ("README.md", "docs/benchmarks.md"))
    for text in (readme, docs):
        assert text.startswith(f"# Before\n\n{BEGIN}\n")
        assert text.endswith(f"{END}\n\nafter\n")
        assert "\nold\n" not in text
        assert "A processor &lt;of> 2 &amp; more" in text
    assert 'src="docs/images/speed.light.svg"' in readme
    assert 'srcset="images/cost.dark.svg"' in docs
    assert {path for path in paths if path.suffix == ".svg"} == set((tmp_path / "docs" / "images").iterdir())
    assert write_documents(RESULT, tmp_path) == paths
    assert (tmp_path / "docs" / "benchmarks.md").read_text() == docs


def test_between_refuses_a_text_without_a_pair_of_markers() -> None:
    for text in ("", BEGIN, END, f"{END} {BEGIN}"):
        with pytest.raises(NoMarkers):
            between(text, "part")


def test_readme_and_benchmarks_page_contain_the_markers() -> None:
    for name in ("README.md", "docs/benchmarks.md"):
        assert between((report.ROOT / name).read_text(), "part")


def test_the_benchmarks_page_contains_the_table_of_the_judged_aims() -> None:
    assert f"\n{report.sought()}\n" in (report.ROOT / "docs" / "benchmarks.md").read_text()


def test_the_report_module_prints_a_result_and_refuses_other_files(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result_file.as_json(RESULT)))
    assert CliRunner().invoke(report.main, [str(path)]).output == table(RESULT)
    path.write_text("{}")
    found = CliRunner().invoke(report.main, [str(path)])
    assert (found.exit_code, "no result" in found.output) == (1, True)


LIGHT_MODULES = "import sys, fencepost.bench.contest.report; print(*sys.modules)"


def test_importing_the_report_module_imports_neither_benchmark_loads_nor_matplotlib() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT_MODULES], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "hdrh", "confluent_kafka", "fencepost.bench.contest.contest"} & set(done.stdout.split())
