"""A Grafana board: a table of panels, and the JSON that Grafana imports (its dashboard model, schema 39)."""

from typing import Any, NamedTuple

WIDTH, HEIGHT, COLUMNS = 8, 8, 3


class Panel(NamedTuple):
    """A graph, or a single number. queries: each with its legend."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    single: bool = False


def _quantiles(name: str) -> tuple[tuple[str, str], ...]:
    """Return the (PromQL expression, legend) of the median and the 99th percentile of this histogram."""
    rate = f"sum by (le) (rate({name}_bucket[$__rate_interval]))"
    return tuple((f"histogram_quantile({at}, {rate})", f"p{round(at * 100)}") for at in (0.5, 0.99))


PANELS = (
    Panel("Oldest open transaction", "s", (("max(fencepost_oldest_open_transaction_seconds)", ""),), single=True),
    Panel("Offsets held back", "short", (
        ("sum(fencepost_partition_high_watermark - fencepost_partition_last_stable_offset)", ""),), single=True),
    Panel("Connections", "short", (("sum(fencepost_connections)", ""),), single=True),
    Panel("Requests", "reqps", (("sum by (api) (rate(fencepost_requests_total[$__rate_interval]))", "{{api}}"),)),
    Panel("Requests, 99th percentile", "s", (
        ("histogram_quantile(0.99, sum by (le, api) (rate(fencepost_request_duration_seconds_bucket"
         "[$__rate_interval])))", "{{api}}"),)),
    Panel("Errors in answers", "ops", (
        ("sum by (api, error) (rate(fencepost_request_errors_total[$__rate_interval]))", "{{api}} {{error}}"),)),
    Panel("Sync of a round", "s", _quantiles("fencepost_fsync_duration_seconds")),
    Panel("Records in", "wps", (
        ("sum by (topic) (rate(fencepost_produce_records_total[$__rate_interval]))", "{{topic}}"),)),
    Panel("Bytes in and out", "Bps", (
        ("sum(rate(fencepost_produce_bytes_total[$__rate_interval]))", "produced"),
        ("sum(rate(fencepost_fetch_bytes_total[$__rate_interval]))", "fetched"))),
    Panel("Bytes made durable together", "bytes", _quantiles("fencepost_round_size_bytes")),
    Panel("Transactions by state", "short", (("sum by (state) (fencepost_transactions)", "{{state}}"),)),
    Panel("Transactions ended", "ops", (
        ("sum by (outcome) (rate(fencepost_transactions_completed_total[$__rate_interval]))", "{{outcome}}"),)),
    Panel("Duration of transactions", "s", _quantiles("fencepost_transaction_duration_seconds")),
    Panel("Fenced, duplicate, out of order", "ops", (
        ("sum by (reason) (rate(fencepost_producer_fenced_total[$__rate_interval]))", "fenced: {{reason}}"),
        ("sum(rate(fencepost_duplicate_batches_total[$__rate_interval]))", "duplicates"),
        ("sum(rate(fencepost_out_of_order_sequence_total[$__rate_interval]))", "out of order"))),
    Panel("Lag to what can be read (LSO)", "short", (
        ("sum by (consumergroup, topic) (fencepost_consumergroup_lag_stable)", "{{consumergroup}} {{topic}}"),)),
    Panel("Lag to the end of the log (HW)", "short", (
        ("sum by (consumergroup, topic) (kafka_consumergroup_lag)", "{{consumergroup}} {{topic}}"),)),
    Panel("Members of groups", "short", (
        ("sum by (consumergroup) (kafka_consumergroup_members)", "{{consumergroup}}"),)),
    Panel("Size of topics", "bytes", (("sum by (topic) (fencepost_log_size_bytes)", "{{topic}}"),)),
    Panel("Journal", "bytes", (
        ("sum(fencepost_journal_bytes)", "used"), ("sum(fencepost_journal_max_bytes)", "limit"))),
    Panel("Event loop lag", "s", _quantiles("fencepost_event_loop_lag_seconds")),
)  # fmt: skip


def board(title: str) -> dict[str, Any]:
    """Return the whole board. The data source is asked for when it is imported."""
    return {
        "__inputs": [{"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "pluginId": "prometheus"}],
        "title": title,
        "tags": ["fencepost", "kafka"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": []},
        "panels": [_panel(number, each) for number, each in enumerate(PANELS)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    """Return a panel of the Grafana dashboard as its JSON object. number: its place on the board."""
    source = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
    row, column = divmod(number, COLUMNS)
    return {
        "id": number + 1,
        "title": panel.title,
        "type": "stat" if panel.single else "timeseries",
        "datasource": source,
        "gridPos": {"x": column * WIDTH, "y": row * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}} if not panel.single else {},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": source, "expr": query, "legendFormat": legend}
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }
