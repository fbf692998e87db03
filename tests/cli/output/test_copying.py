"""What `backup` and `restore` show while they copy, and how their errors read."""

import errno
import io
import sys

import pytest
from fencepost.cli.output import copying
from fencepost.cli.output.interruption import Interruption
from fencepost.effects.disk import DiskFull
from fencepost.storage.backup.manifest import BackupRefused
from fencepost.storage.checkpoints import Damaged, NewerFormat


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    times = [0.0]
    monkeypatch.setattr(copying.time, "monotonic", lambda: times[0])
    return times


def shown(clock, steps):
    with Interruption() as interruption, copying.copying(interruption, "copied") as report:
        for now, done in steps:
            clock[0] = now
            report(done, 10_000_000)


def test_a_long_copy_of_a_backup_shows_progress_on_a_terminal(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    shown(clock, [(0.5, 1_000_000), (1.5, 2_000_000), (1.6, 2_500_000), (2.0, 9_500_000)])
    first, second, cleared, end = screen.getvalue().split("\r")[1:]
    assert (first.strip(), second.strip()) == ("copied 2.0 MB of 10.0 MB", "copied 9.5 MB of 10.0 MB")
    assert (cleared.strip(), end) == ("", "")


def test_a_backup_copy_shows_no_progress_in_its_first_second_or_to_a_pipe(clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    shown(clock, [(0.1, 1), (0.9, 2)])
    assert screen.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", pipe := io.StringIO())
    shown(clock, [(5.0, 1), (9.0, 2)])
    assert pipe.getvalue() == ""


def test_a_copys_progress_report_raises_keyboard_interrupt_after_a_signal(clock):
    with Interruption() as interruption, copying.copying(interruption, "copied") as report:
        report(1, 2)
        interruption.wanted = True
        with pytest.raises(KeyboardInterrupt):
            report(2, 2)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (3_400_000, "3.4 MB"),
        (10**10, "10.0 GB"),
        (10**13, "10.0 TB"),
    ],
)
def test_sizes_are_printed_in_human_readable_units(size, text):
    assert copying.size_text(size) == text


@pytest.mark.parametrize(
    ("error", "cause", "hint"),
    [
        (BackupRefused("b is not empty", "another"), "b is not empty", "another"),
        (Damaged("/b/x", "it fails its checksum"), "/b/x: it fails its checksum", "look"),
        (NewerFormat("/b/x", 9), "/b/x has format 9", "use that version"),
        (DiskFull(errno.ENOSPC, "No space left on device", "/b/x"), "/b/x: the disk is full", "free some space"),
        (DiskFull(errno.ENOSPC, "9 bytes are to be copied", "/b"), "/b: the disk is full: 9 bytes are", "free some"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/d"),
            "/d: Permission denied",
            "as the user of the broker, and name a target",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/d"), "/d: No such file", "in the names"),
        (OSError(errno.EIO, "Input/output error", "/d"), "/d: Input/output error", "the system's log"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_failure_of_gives_each_error_of_a_copy_a_cause_and_a_hint(error, cause, hint):
    failure = copying.failure_of(error, "look")
    assert failure.message.startswith(cause)
    assert hint in failure.hint


def test_failure_of_raises_an_unexpected_exception_unchanged():
    with pytest.raises(ZeroDivisionError):
        copying.failure_of(ZeroDivisionError(), "look")
