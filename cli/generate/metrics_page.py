"""docs/metrics.md, made from the tables of what is exported: python -m fencepost.cli.generate.metrics_page."""

from ...broker.requests.exported_metrics import FAMILIES
from ...console.metrics import READ
from ..output.writing import show_own_text

_KINDS = ("gauge", "counter", "histogram")

HEAD = """\
# Metrics

`/metrics` of the console (`serve --http`, or `fencepost console` for any Kafka) has the text format of Prometheus.
This page is made from the code: `python -m fencepost.cli.generate.metrics_page > docs/metrics.md`.

`fencepost generate prometheus` prints what to scrape, with `--rules` the alerts, among them an open transaction that
blocks consumers; `fencepost generate grafana` prints a board. Both name only what is listed here.

## Of any Kafka

Read by Kafka's APIs. The names that begin with `kafka_` are those of kafka_exporter, so boards made for it show the
same here. Beyond 20,000 partitions, 2,000 groups or 32 MiB series are left out, and `fencepost_scrape_left_out` says
how many.
A part that fails or is forbidden is left out too, and named in `fencepost_scrape_errors`.
"""

OWN = """
## Of a fencepost broker

What the broker counts since its start, asked for by [DescribeMetrics](apis.md), which needs Describe on the cluster.
Counters are plain integers, and what connections and logs count anyway is added up only when it is asked for. Buckets
of histograms are powers of two. `topic` has at most 2,000 values; internal topics are among them. Elsewhere these
metrics are absent.

Of share groups, Apache Kafka's names are: RecordAcknowledgementsPerSec, here `fencepost_share_acknowledgements_total`;
AcquisitionLockTimeoutPerSec, `fencepost_share_lock_timeouts_total`; InFlightMessageCount,
`fencepost_share_in_flight_records`; InFlightBatchCount, `fencepost_share_in_flight_runs` (KIP-932, KIP-1103).
"""


def page() -> str:
    """Return the whole page docs/metrics.md."""
    lines = [HEAD, *_table([(each.name, "gauge", each.labels, each.help) for each in READ]), OWN]
    lines += _table([(each.name, _KINDS[each.kind], each.labels, each.help) for each in FAMILIES])
    return "\n".join(lines) + "\n"


def _table(rows: "list[tuple[str, str, tuple[str, ...], str]]") -> list[str]:
    """Return the lines of a Markdown table of metrics."""
    written = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |"
        for name, kind, labels, text in rows
    ]
    return ["| name | kind | labels | |", "|---|---|---|---|", *written]


if __name__ == "__main__":
    show_own_text(page())
