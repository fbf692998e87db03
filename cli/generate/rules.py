"""Prometheus: what to scrape, and the alerts. Written as text, because YAML as simple as this needs no library."""

import json
from typing import NamedTuple

SCRAPE = """\
# prometheus.yml: scrape the console of a fencepost broker, or of any Kafka (fencepost console).
scrape_configs:
  - job_name: fencepost
    scrape_interval: 15s
    static_configs:
      - targets: ["{target}"]
    # Where the console asks for a token:
    # authorization:
    #   credentials_file: /etc/prometheus/fencepost-token

# The alerts: fencepost generate prometheus --rules > fencepost.rules.yml
rule_files:
  - fencepost.rules.yml
"""


class Alert(NamedTuple):
    """One alert rule. wait: how long its query must be true first."""

    name: str
    query: str
    wait: str
    severity: str
    summary: str


ALERTS = (
    Alert(
        "FencepostOpenTransactionBlocksConsumers",
        "max by (topic, partition) (fencepost_partition_high_watermark - fencepost_partition_last_stable_offset) > 0"
        " and on () fencepost_oldest_open_transaction_seconds > 60",
        "1m",
        "warning",
        "An open transaction holds back readers of {{ $labels.topic }}-{{ $labels.partition }}.",
    ),
    Alert(
        "FencepostTransactionIsHeld",
        "fencepost_oldest_held_transaction_seconds > 60",
        "0m",
        "critical",
        "A transaction waits for the decision of a database, and readers of its partitions wait with it.",
    ),
    Alert(
        "FencepostConsumerGroupLagGrows",
        "sum by (consumergroup, topic) (fencepost_consumergroup_lag_stable) > 10000"
        " and sum by (consumergroup, topic) (deriv(fencepost_consumergroup_lag_stable[10m])) > 0",
        "15m",
        "warning",
        "Group {{ $labels.consumergroup }} falls behind on {{ $labels.topic }}.",
    ),
    Alert(
        "FencepostSyncIsSlow",
        "histogram_quantile(0.99, sum by (le) (rate(fencepost_fsync_duration_seconds_bucket[5m]))) > 0.25",
        "10m",
        "warning",
        "One sync in a hundred takes more than 250 ms: producers wait for it.",
    ),
    Alert(
        "FencepostEventLoopIsLate",
        "histogram_quantile(0.99, sum by (le) (rate(fencepost_event_loop_lag_seconds_bucket[5m]))) > 0.5",
        "10m",
        "warning",
        "The broker's loop is late by more than half a second: the machine or the broker is overloaded.",
    ),
    Alert(
        "FencepostJournalIsNearlyFull",
        "fencepost_journal_bytes / fencepost_journal_max_bytes > 0.75",
        "5m",
        "critical",
        "The journal is nearly full: the disk does not keep up, and producers will have to wait.",
    ),
    Alert(
        "FencepostGroupOffsetsAreHeld",
        "fencepost_consumergroup_offsets_held > 0",
        "5m",
        "warning",
        "A transaction holds offsets of group {{ $labels.consumergroup }}: its members cannot begin.",
    ),
    Alert(
        "FencepostDiskIsNearlyFull",
        "fencepost_storage_usable_bytes <= fencepost_storage_min_free_bytes",
        "0m",
        "critical",
        "The broker refuses produce requests: its disk is below storage.min.free.bytes.",
    ),
    Alert(
        "FencepostDiskFillsUp",
        "predict_linear(fencepost_storage_usable_bytes[1h], 4 * 3600) < fencepost_storage_min_free_bytes",
        "15m",
        "warning",
        "In four hours the disk will be nearly full, and the broker will refuse produce requests.",
    ),
    Alert(
        "FencepostBackupFallsBehind",
        "fencepost_backup_loss_window_seconds > 60 or fencepost_backup_troubled > 0",
        "5m",
        "critical",
        "The backup does not follow: a lost disk would cost what was acknowledged since.",
    ),
    Alert(
        "FencepostStoreAway",
        "fencepost_store_troubled > 0 or fencepost_store_unanswered_seconds > 10",
        "1m",
        "critical",
        "The object store does not do what the broker asks: nothing is acknowledged, and clients wait.",
    ),
    Alert(
        "FencepostIsDown",
        'up{job="fencepost"} == 0 or fencepost_scrape_errors{part="broker"} > 0',
        "2m",
        "critical",
        "The broker does not answer the console, or the console does not answer.",
    ),
)


def scrape_text(target: str) -> str:
    """Return the text of prometheus.yml."""
    return SCRAPE.format(target=target.replace('"', ""))


def rules_text() -> str:
    """Return the text of a file of alert rules."""
    lines = ["groups:", "  - name: fencepost", "    rules:"]
    for each in ALERTS:
        lines += [
            f"      - alert: {each.name}",
            f"        expr: {json.dumps(each.query)}",  # a string of JSON is one of YAML
            f"        for: {each.wait}",
            "        labels:",
            f"          severity: {each.severity}",
            "        annotations:",
            f"          summary: {json.dumps(each.summary)}",
        ]
    return "\n".join(lines) + "\n"
