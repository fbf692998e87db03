"""Lines that any client can cause do not fill the log."""

import logging

from fencepost.broker.rare_log import MAX_LINES, WHILE_MS, RareLog


def test_log_lines_above_the_rate_limit_are_left_out_and_counted_in_one_line(caplog):
    now_ms = 0
    rare = RareLog(logging.getLogger("fencepost.broker"), lambda: now_ms)
    with caplog.at_level(logging.INFO):
        for number in range(MAX_LINES + 5):
            rare.write(logging.INFO, "line %d", number)
        assert [record.getMessage() for record in caplog.records] == [f"line {number}" for number in range(MAX_LINES)]
        now_ms = WHILE_MS
        caplog.clear()
        rare.write(logging.WARNING, "another")
        assert [record.getMessage() for record in caplog.records] == [
            "5 more lines like those before were left out",
            "another",
        ]
        caplog.clear()
        now_ms += WHILE_MS
        rare.write(logging.WARNING, "again")
        assert [record.getMessage() for record in caplog.records] == ["again"]
