"""`fencepost bench compare`: its output and its exit code. The runs that it compares are made up."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fencepost.bench import result_file
from fencepost.bench.comparison import compare
from fencepost.bench.measured import Measured
from fencepost.bench.peers.names import FSYNC, KAFKA, OS
from fencepost.cli import main
from made_findings import FACTS, made_result, rates

BEFORE = [
    rates("small 64x1", FSYNC, 100.0, 104.0, 98.0, cpu_us=[8.0, 8.1, 7.9], p99_ms=[1.0, 1.2, 1.1]),
    rates("small 64x1", KAFKA, 80.0, 81.0, 82.0),
    rates("start", OS, 0.21, 0.22, figure="ready_s"),
]


def written(path: Path, findings: Sequence[Measured], **facts: object) -> str:
    result = result_file.Result({**FACTS, **facts}, tuple(findings), ())
    path.write_text(json.dumps(result_file.as_json(result)))
    return str(path)


def compared(directory: Path, after: Sequence[Measured], *options: str, **facts: object) -> Result:
    before = written(directory / "before.json", BEFORE)
    return CliRunner().invoke(
        main, ["bench", "compare", before, written(directory / "after.json", after, **facts), *options]
    )


def test_a_run_compared_with_itself_has_no_regressions(tmp_path: Path) -> None:
    found = compared(tmp_path, BEFORE)
    assert (found.exit_code, found.stdout) == (0, "5 figures compared, 5 the same, 0 regressions\n")


GOLDEN = """\
scenario    peer             figure                 A     B   B/A  spread
small 64x1  fencepost fsync  requests/s           100  60.0  0.60  0.56 to 0.63  worse
small 64x1  fencepost fsync  CPU per request, µs  8.00  4.00  0.50  0.48 to 0.52  better
small 64x1  Kafka            requests/s          81.0  50.0  0.62  0.60 to 0.64  worse
5 figures compared, 2 the same, 1 regression
"""


def test_changes_are_shown_in_a_table_and_a_regression_exits_with_1(tmp_path: Path) -> None:
    after = [
        rates("small 64x1", FSYNC, 58.0, 60.0, 62.0, cpu_us=[4.0, 4.1, 3.9], p99_ms=[1.0, 1.2, 1.1]),
        rates("small 64x1", KAFKA, 49.0, 50.0, 51.0),
        BEFORE[2],
    ]
    found = compared(tmp_path, after)
    assert found.exit_code == 1
    assert [line.split() for line in found.stdout.splitlines()] == [line.split() for line in GOLDEN.splitlines()]
    listed = [json.loads(line) for line in compared(tmp_path, after, "-o", "json").stdout.splitlines()]
    assert [(each["peer"], each["figure"], each["change"], each["regression"]) for each in listed] == [
        (FSYNC, "rate", "worse", True),
        (FSYNC, "cpu_us", "better", False),
        (FSYNC, "p99_ms", "same", False),
        (KAFKA, "rate", "worse", False),
        (OS, "ready_s", "same", False),
    ]
    assert listed[0] == {
        "scenario": "small 64x1",
        "unit": "request",
        "peer": FSYNC,
        "figure": "rate",
        "before": 100.0,
        "after": 60.0,
        "ratio": 0.6,
        "low": round(58 / 104, 6),
        "high": round(62 / 98, 6),
        "apart": True,
        "change": "worse",
        "regression": True,
    }
    assert len(compared(tmp_path, after, "--all").stdout.splitlines()) == 7


@pytest.mark.parametrize(
    ("rounds", "worse"),
    [
        ((70.0, 70.0, 99.0), False),  # the best round (99) overlaps with the rounds before (98 to 104)
        ((89.0, 91.0, 92.0), False),  # no overlap, but the median is less than a tenth worse
        ((87.0, 88.0, 89.0), True),
    ],
)
def test_a_regression_is_outside_both_spreads_and_worse_by_over_a_tenth(
    tmp_path: Path, rounds: tuple[float, ...], worse: bool
) -> None:
    assert compared(tmp_path, [rates("small 64x1", FSYNC, *rounds)]).exit_code == int(worse)


def test_slower_figures_of_other_brokers_are_not_regressions(tmp_path: Path) -> None:
    found = compared(tmp_path, [rates("small 64x1", KAFKA, 10.0, 11.0)])
    assert (found.exit_code, "worse" in found.stdout) == (0, True)


def test_a_slower_single_round_is_not_a_regression(tmp_path: Path) -> None:
    assert compared(tmp_path, [rates("small 64x1", FSYNC, 10.0)]).exit_code == 0


def test_comparing_runs_of_different_machines_prints_a_warning(tmp_path: Path) -> None:
    found = compared(tmp_path, BEFORE, cores=64)
    assert found.stderr == "not the same machine: cores: 2 in A, 64 in B\n"


def test_figures_missing_from_the_second_run_are_listed(tmp_path: Path) -> None:
    found = compared(tmp_path, BEFORE[1:2])
    assert (found.exit_code, found.stderr) == (
        0,
        f"not measured in B: small 64x1, {FSYNC}\nnot measured in B: start, {OS}\n",
    )


def test_results_that_cannot_be_compared_exit_with_2_and_a_hint(tmp_path: Path) -> None:
    nothing = compared(tmp_path, [rates("another", FSYNC, 1.0)])
    assert (nothing.exit_code, "no scenario in common" in nothing.stderr) == (2, True)
    (tmp_path / "no.json").write_text("{}")
    for path in ("no.json", "absent.json"):
        found = CliRunner().invoke(main, ["bench", "compare", str(tmp_path / path), str(tmp_path / path)])
        cause, hint = found.stderr.splitlines()
        assert (found.exit_code, path in cause, hint.startswith("hint: ")) == (2, True, True)


def test_compare_leaves_out_figures_that_follow_from_another_and_the_p999() -> None:
    found = made_result().findings
    figures = [each.figure for each in compare(found, found) if (each.scenario, each.peer) == ("produce 1 KB", OS)]
    assert figures == ["rate", "cpu_us", "p50_ms", "p99_ms", "rss_mb"]


HELP = """
import sys
from fencepost.cli import main
try:
    main(["bench", "compare", "--help"], standalone_mode=False)
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""


def test_the_help_of_bench_imports_no_load_and_no_plot() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True)
    heavy = {"matplotlib", "hdrh", "uvloop", "rich", "confluent_kafka", "fencepost.protocol", "fencepost.bench.small"}
    assert not heavy & set(done.stderr.split())
