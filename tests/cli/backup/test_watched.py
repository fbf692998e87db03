"""What a follower reports, and for how long it asks a store that does not answer."""

import pytest
from fencepost.cli.backup.patience import LONGEST_PAUSE_S, SAID_AFTER, Patience
from fencepost.cli.backup.watched import Told, prometheus_text, write_metrics
from fencepost.effects.objects import Unclear
from prometheus_client.parser import text_string_to_metric_families

TROUBLE = Unclear("a", "503")


def samples(text):
    return {each.name: each.value for family in text_string_to_metric_families(text) for each in family.samples}


def test_prometheus_text_has_the_backups_counts_bytes_and_loss_window():
    text = prometheus_text(Told(1500, 500, 2, 10, 4096, 77), 1_000_000)
    assert samples(text) == {
        "fencepost_backup_points_total": 2,
        "fencepost_backup_objects_total": 10,
        "fencepost_backup_bytes_total": 4096,
        "fencepost_backup_loss_window_seconds": 1.5,
        "fencepost_backup_covered_timestamp_seconds": 999.5,
    }


def test_prometheus_text_omits_the_loss_window_before_the_first_checkpoint():
    assert "fencepost_backup_loss_window_seconds" not in samples(prometheus_text(Told(None, None, 0, 0, 0, 0), 1))


def test_write_metrics_replaces_its_file_and_leaves_no_temporary_file(tmp_path):
    path = tmp_path / "backup.prom"
    write_metrics(str(path), "one\n")
    write_metrics(str(path), "two\n")
    assert path.read_text() == "two\n"
    assert list(tmp_path.iterdir()) == [path]


class Clocked:
    """A clock that only sleeping moves."""

    def __init__(self, most_s=None, check=lambda: None):
        self.now_s = 0.0
        self.said = []
        self.patience = Patience(check, self.said.append, most_s, lambda: self.now_s, self.sleep)

    def sleep(self, seconds):
        self.now_s += seconds


def test_pauses_between_retries_grow_to_a_limit_and_the_error_is_logged_once():
    world = Clocked()
    waits = []
    for _ in range(20):
        before = world.now_s
        world.patience(TROUBLE)
        waits.append(world.now_s - before)
    assert waits[0] <= 0.2
    assert LONGEST_PAUSE_S / 2 <= waits[-1] <= LONGEST_PAUSE_S
    assert len(world.said) == 1
    assert "503" in world.said[0]
    assert world.patience.trouble == "a: 503"


def test_the_end_of_an_outage_of_the_store_is_logged_once():
    world = Clocked()
    for _ in range(SAID_AFTER):
        world.patience(TROUBLE)
    world.patience.over()
    world.patience.over()
    assert len(world.said) == 2
    assert world.said[1].startswith("the store answers again, after")
    assert world.patience.trouble == ""


def test_a_single_failed_request_to_the_store_is_not_logged():
    world = Clocked()
    world.patience(TROUBLE)
    world.patience.over()
    assert world.said == []


def test_after_60_seconds_of_failed_retries_the_stores_error_is_raised():
    world = Clocked(most_s=60)
    with pytest.raises(Unclear):
        [world.patience(TROUBLE) for _ in range(1000)]
    assert 60 <= world.now_s <= 60 + LONGEST_PAUSE_S


def test_a_signal_interrupts_the_wait_before_the_next_retry():
    def check():
        if world.now_s > 1:
            raise KeyboardInterrupt

    world = Clocked(check=check)
    with pytest.raises(KeyboardInterrupt):
        world.patience.wait(3600)
    assert world.now_s < 2
