"""The result of a run is written as JSON and read back."""

import json
from pathlib import Path

import pytest
from fencepost.bench.result_file import NotAResult, as_json, from_json, read
from made_findings import made_result


def test_a_result_file_reads_back_as_it_was_written() -> None:
    result = made_result()
    assert from_json(json.loads(json.dumps(as_json(result)))) == result


def test_figures_use_the_open_messaging_benchmarks_names_where_they_exist() -> None:
    document = as_json(made_result())
    by = {(each["workload"], each["driver"]): each for each in document["findings"]}
    produce = by["produce 1 KB", "Kafka"]
    assert {"publishRate", "publishLatency50pct", "publishLatency99pct", "publishLatency999pct"} <= set(
        produce["figures"]
    )
    assert "99.9" in produce["aggregatedPublishLatencyQuantiles"]
    assert "consumeRate" in by["consume 1 KB", "Kafka"]["figures"]
    through = by["end to end 2,000/s", "fencepost os"]
    assert "endToEndLatency99pct" in through["figures"]
    assert "50" in through["aggregatedEndToEndLatencyQuantiles"]
    assert through["clientSaturated"] is True


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "no result"),
        ("[1]", "no result"),
        ('{"rows": []}', "no result"),
        ('{"format": 2, "findings": []}', "format is 2"),
        ('{"format": 1, "findings": [{}], "facts": {}, "verdicts": []}', "no result"),
        ('{"format": 1, "findings": [3], "facts": {}, "verdicts": []}', "no result"),
        ('{"format": 1, "findings": [], "facts": 3, "verdicts": []}', "no result"),
        ("[" * 100_000, "no result"),
    ],
)
def test_reading_a_file_that_is_not_a_result_raises_not_a_result_with_the_cause(
    tmp_path: Path, text: str, cause: str
) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    with pytest.raises(NotAResult, match=cause):
        read(path)


@pytest.mark.parametrize("value", ['"100"', "NaN", "-Infinity", "true", "null"])
def test_reading_a_result_with_a_figure_that_is_not_a_number_raises_not_a_result(tmp_path: Path, value: str) -> None:
    document = as_json(made_result())
    document["findings"][0]["figures"]["publishRate"] = ["here"]
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document).replace('"here"', value))
    with pytest.raises(NotAResult, match="a figure of it is"):
        read(path)
