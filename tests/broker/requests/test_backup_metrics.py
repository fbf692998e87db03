"""Metrics of a backup that follows: from what the child process has told, and growing while it tells nothing."""

from fencepost.protocol.messages.monitoring import DescribeMetricsRequest
from simulated_broker import SimulatedBroker


def exported(world):
    answer = world.ask(DescribeMetricsRequest())
    found = {family.name: [each.value for each in family.samples] for family in answer.families}
    prefix = "fencepost_backup_"
    return {name.removeprefix(prefix): values for name, values in found.items() if name.startswith(prefix)}


def test_a_broker_without_a_backup_follower_has_no_backup_samples():
    with SimulatedBroker() as world:
        assert not any(exported(world).values())


def test_the_backup_loss_window_is_exported_after_the_first_report_and_then_grows():
    with SimulatedBroker() as world:
        backup = world.broker.metrics.backup
        backup.is_followed = True
        assert exported(world) == {
            "loss_window_seconds": [], "troubled": [0], "points_total": [0], "objects_total": [0], "bytes_total": [0],
        }  # fmt: skip
        backup.covered_ms = world.broker.clock.monotonic_ms() - 1500
        backup.points, backup.objects, backup.size_bytes, backup.is_troubled = 1, 5, 4096, True
        (before,) = exported(world)["loss_window_seconds"]
        assert before >= 1.5
        world.wait(10)
        found = exported(world)
        assert found["loss_window_seconds"][0] >= before + 10
        assert [found[name] for name in ("troubled", "points_total", "objects_total", "bytes_total")] == [
            [1], [1], [5], [4096],
        ]  # fmt: skip
