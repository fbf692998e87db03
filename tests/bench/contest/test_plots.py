"""The plots of a made-up run: SVG for both themes, with what was measured and nothing else."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fencepost.bench.contest.plots import BARS, DARK, LIGHT, PLOTS, THEMES, Theme, draw, speed, throughput
from fencepost.bench.peers.names import FSYNC, KAFKA, KAFKA_FLUSH, OS
from long_runs import first_only
from made_findings import made_result, rates

SVG = "{http://www.w3.org/2000/svg}"
FINDINGS = made_result().findings


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("theme", first_only(THEMES), ids=lambda theme: theme.name)
@pytest.mark.parametrize("name", PLOTS)
def test_every_plot_is_svg_and_its_text_is_not_drawn_as_paths(name: str, theme: Theme) -> None:
    svg = PLOTS[name](FINDINGS, theme)
    assert svg is not None
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.find(f"{SVG}title") is not None
    assert theme.peers[FSYNC] in svg
    assert theme.text in svg
    assert {"fencepost (fsync)", "fencepost (os)", "Kafka (flush)"} <= set(texts(svg))


def test_drawing_a_plot_of_the_same_run_twice_gives_the_same_bytes() -> None:
    assert speed(FINDINGS, LIGHT) == speed(FINDINGS, LIGHT)


def test_bars_of_a_plot_show_the_ratio_to_kafka_and_mark_a_saturated_client() -> None:
    found = [
        rates("small 64x1", FSYNC, 90.0),
        replace(rates("small 64x1", OS, 150.0), saturated=True),
        rates("small 64x1", KAFKA, 100.0),
        rates("small 64x1", KAFKA_FLUSH, 12.0),
    ]
    svg = speed(found, DARK)
    assert svg is not None
    assert {"0.90", "1.50 *", "0.12", "Kafka = 1", "1 × 100 B, 64 connections", "aim"} <= set(texts(svg))
    assert "transactions/s, 1 producer" not in texts(svg)


def test_a_plot_marks_the_bar_of_a_jvm_that_was_not_steady() -> None:
    found = [rates("small 64x1", FSYNC, 90.0), replace(rates("small 64x1", KAFKA, 100.0), warm=False)]
    svg = speed(found, DARK)
    assert svg is not None
    assert {"0.90 †", "† a JVM not steady"} <= set(texts(svg))


def test_plots_escape_special_characters_in_their_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.bench.contest.plots.SHOWN", {peer: f"<{peer}> & 'more'" for peer in BARS})
    svg = speed(FINDINGS, LIGHT)
    assert svg is not None
    assert f"<{FSYNC}> & 'more'" in texts(svg)


def test_plots_leave_out_scenarios_that_were_not_measured(tmp_path: Path) -> None:
    assert draw([rates("small 64x1", FSYNC, 90.0)], tmp_path / "none") == []
    assert not (tmp_path / "none").exists()
    assert throughput([each for each in FINDINGS if not each.scenario.startswith("small 1x")], LIGHT) is not None
    # Two points of the curve are left, too few to draw it.
    assert throughput([each for each in FINDINGS if not each.scenario.startswith("small 1")], LIGHT) is None
    some = draw([each for each in FINDINGS if each.scenario == "end to end 2,000/s"], tmp_path)
    names = ["cost.light.svg", "cost.dark.svg", "latency.light.svg", "latency.dark.svg"]
    assert [path.name for path in some] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
