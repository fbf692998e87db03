"""Low disk space is logged once when it begins, with the numbers and the setting, and once when it has ended."""

import logging

import pytest
from fencepost.storage.free_space import ROOM_AGAIN_BYTES, FreeSpace

FLOOR = 64 << 20


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [(each.levelname, each.getMessage()) for each in caplog.records]
    caplog.clear()
    return found


def test_low_disk_space_and_its_end_are_each_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    space = FreeSpace("/d", FLOOR)
    with caplog.at_level(logging.INFO, "fencepost.storage"):
        space.look(FLOOR + 1)
        assert lines(caplog) == []
        for usable in (FLOOR, FLOOR - 5, FLOOR + ROOM_AGAIN_BYTES - 1, 0, FLOOR - 10):
            space.look(usable)
        ((level, text),) = lines(caplog)
        assert (level, "/d" in text, "67,108,864 stay free (storage.min.free.bytes)" in text) == ("ERROR", True, True)
        assert "67,108,854 bytes are free" in space.refuse()
        space.look(FLOOR + ROOM_AGAIN_BYTES)
        ((level, text),) = lines(caplog)
        assert (level, "has room again" in text, "refused since the start: 1" in text) == ("WARNING", True, True)
        space.look(FLOOR)
        assert len(lines(caplog)) == 1, "low space that begins again is logged again"


def test_refuse_returns_a_text_with_the_free_bytes_and_logs_low_space_once(caplog: pytest.LogCaptureFixture) -> None:
    space = FreeSpace("/d", FLOOR)
    with caplog.at_level(logging.INFO, "fencepost.storage"):
        space.look(FLOOR + 100)
        text = space.refuse()
        assert "67,108,964 bytes are free, 67,108,864 stay free (storage.min.free.bytes)" in text
        assert "nothing was written, try again later" in text
        space.refuse()
        assert [level for level, _ in lines(caplog)] == ["ERROR"]
    assert space.refusals == 2
