"""What the backup process of `serve` reports becomes metrics of the broker; anything else that it prints is ignored."""

import asyncio
import json
import sys

import pytest
from fencepost.broker.metrics import Metrics
from fencepost.cli.serve.following import Following
from fencepost.effects.simulated.clock import SimulatedClock

TOLD = {"uncovered_ms": 200, "points": 2, "objects": 7, "size_bytes": 9, "trouble": ""}
LINES = [b"not json", b"[]", b"{}", json.dumps(TOLD | {"points": "x"}).encode()]


@pytest.mark.parametrize("line", LINES)
async def test_unknown_output_lines_of_the_backup_process_change_no_metric_of_serve(line):
    metrics, clock = Metrics(), SimulatedClock(monotonic_ms=5000)
    following = Following([sys.executable, "-c", "input()"], metrics, clock)
    following._take(line)
    assert metrics.backup.covered_ms is None
    following._take(json.dumps(TOLD).encode())
    assert (metrics.backup.covered_ms, metrics.backup.points, metrics.backup.objects) == (4800, 2, 7)
    await asyncio.sleep(0)
    await following.end()
