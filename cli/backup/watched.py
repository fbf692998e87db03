"""The reports of a follower: lines for people, JSON for the broker beside it, a file for Prometheus' node exporter."""

import os
from dataclasses import asdict, dataclass

from ..output.writing import as_json

PREFIX = "fencepost_backup_"


@dataclass
class Told:
    """The state of a follower in one report. trouble: why nothing can be shipped now; "" if there is no reason.

    loss_window_ms: how large the loss window was at most since the last report. uncovered_ms: how large it is now. Both
    are None before the first point.
    """

    loss_window_ms: int | None
    uncovered_ms: int | None
    points: int
    objects: int
    size_bytes: int
    last_unit: int
    trouble: str = ""

    def line(self) -> str:
        """The report as one line of JSON."""
        return as_json(asdict(self))


FAMILIES = (
    ("points_total", "counter", "Points that this follower has taken."),
    ("objects_total", "counter", "Objects that it has created in the store."),
    ("bytes_total", "counter", "Bytes of these."),
    ("loss_window_seconds", "gauge", "How old the newest acknowledgement is that may be missing in the store."),
    ("covered_timestamp_seconds", "gauge", "What was acknowledged before this moment is in the store."),
)


def prometheus_text(told: Told, now_ms: int) -> str:
    """Return the report in Prometheus' text format; times are left out before the first point."""
    values: dict[str, float] = {
        "points_total": told.points,
        "objects_total": told.objects,
        "bytes_total": told.size_bytes,
    }
    if told.loss_window_ms is not None and told.uncovered_ms is not None:
        values["loss_window_seconds"] = told.loss_window_ms / 1000
        values["covered_timestamp_seconds"] = (now_ms - told.uncovered_ms) / 1000
    lines: list[str] = []
    for name, kind, text in FAMILIES:
        if name in values:
            value = values[name]
            lines += [f"# HELP {PREFIX}{name} {text}", f"# TYPE {PREFIX}{name} {kind}", f"{PREFIX}{name} {value!r}"]
    return "\n".join(lines) + "\n"


def write_metrics(path: str, text: str) -> None:
    """Replace a file as a whole, as the node exporter requires. Raises OSError."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w") as file:
        file.write(text)
    os.replace(temporary, path)
