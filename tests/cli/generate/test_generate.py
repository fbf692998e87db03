"""`fencepost generate`: what it prints is well-formed, and names only what /metrics exports."""

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from fencepost.broker.requests.exported_metrics import FAMILIES
from fencepost.cli import main
from fencepost.cli.generate import metrics_page
from fencepost.cli.generate.board import PANELS
from fencepost.cli.generate.rules import ALERTS
from fencepost.console.metrics import READ
from fencepost.protocol.messages.monitoring import HISTOGRAM

DOCS = Path(__file__).parents[3] / "docs"
LABELS: dict[str, set[str]] = {each.name: set(each.labels) for each in READ}
for family in FAMILIES:
    if family.kind == HISTOGRAM:
        LABELS |= {family.name + end: set(family.labels) | {"le"} for end in ("_bucket", "_sum", "_count")}
    else:
        LABELS[family.name] = set(family.labels)
QUERIES = [query for panel in PANELS for query, _ in panel.queries] + [alert.query for alert in ALERTS]


def run(*words: str) -> str:
    result = CliRunner().invoke(main, ["generate", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("query", QUERIES)
def test_grafana_queries_use_only_exported_metrics_and_labels(query: str) -> None:
    names = re.findall(r"\b(?:fencepost|kafka)_\w+", re.sub(r'"[^"]*"', "", query))
    assert set(names) <= LABELS.keys()
    assert names
    of_all = set.union(*(LABELS[name] for name in names))
    for grouping in re.findall(r"\b(?:by|on) \(([^)]*)\)", query):
        assert {label.strip() for label in grouping.split(",") if label.strip()} <= of_all
    for selector in re.findall(r"(\w+)\{([^}]*)\}", query):
        if selector[0] != "up":
            assert set(re.findall(r"(\w+)=", selector[1])) <= LABELS[selector[0]]


def test_grafana_legends_use_labels_that_their_query_keeps() -> None:
    for panel in PANELS:
        for query, legend in panel.queries:
            kept = {label.strip() for found in re.findall(r"by \(([^)]*)\)", query) for label in found.split(",")}
            assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= kept, panel.title


def test_the_grafana_dashboard_has_unique_panel_ids_and_fits_the_grid() -> None:
    board = json.loads(run("grafana", "--title", "ours"))
    assert board["title"] == "ours"
    assert len(board["panels"]) == len(PANELS)
    assert len({panel["id"] for panel in board["panels"]}) == len(PANELS)
    for panel in board["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert [target["refId"] for target in panel["targets"]] == list("ABCDEF")[: len(panel["targets"])]


def test_the_printed_scrape_and_alert_rules_are_yaml() -> None:
    scrape = yaml.safe_load(run("prometheus", "--target", "broker:8082"))
    assert scrape["scrape_configs"][0]["static_configs"] == [{"targets": ["broker:8082"]}]
    (group,) = yaml.safe_load(run("prometheus", "--rules"))["groups"]
    assert [rule["expr"] for rule in group["rules"]] == [alert.query for alert in ALERTS]


def test_the_on_call_page_names_every_alert():
    page = (Path(__file__).resolve().parents[3] / "docs/on-call.md").read_text()
    assert not [alert.name for alert in ALERTS if f"`{alert.name}`" not in page]


def test_the_printed_systemd_unit_is_the_documented_one() -> None:
    assert run("systemd") == (DOCS / "deploy" / "fencepost.service").read_text()


def test_the_documentation_page_of_metrics_is_generated_from_the_tables() -> None:
    assert (DOCS / "metrics.md").read_text() == metrics_page.page(), "make generated"
