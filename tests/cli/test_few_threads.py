"""Commands on a system that refuses a further thread: a cause, a hint and an exit code of its own, no traceback."""

import pytest
from click.testing import CliRunner
from fencepost.cli import main
from few_threads import threads_left


@pytest.mark.parametrize("command", [["doctor", "localhost:1"], ["produce", "t", "-b", "127.0.0.1:1"]])
def test_a_command_that_gets_no_thread_exits_with_75_and_hints_at_ulimit(monkeypatch, command):
    if command[0] == "produce":  # it needs its first thread after the broker has answered: to read standard input
        monkeypatch.setattr("fencepost.client.producer.producer.Producer.start", started)
    with threads_left(0):
        done = CliRunner().invoke(main, command)
    assert done.exit_code == 75, done.output
    assert "error: the system gives this process no further thread" in done.output
    assert "hint: raise the limit of processes and threads (ulimit -u" in done.output
    assert "Traceback" not in done.output


async def started(producer):
    """Pretend that a broker answers."""
