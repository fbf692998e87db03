"""A signal to a command: the first sets a flag that the command checks, the second ends the process at once."""

import signal
import subprocess
import sys

import pytest

NEVER_LOOKS = """
import time
from fencepost.cli.output.interruption import Interruption
with Interruption() as interruption:
    print("began", flush=True)
    while not interruption.wanted:
        time.sleep(0.01)
    print("noted", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_is_recorded_and_the_second_ends_the_process_at_once(
    first: signal.Signals, second: signal.Signals
) -> None:
    command = subprocess.Popen([sys.executable, "-c", NEVER_LOOKS], stdout=subprocess.PIPE, text=True)
    assert command.stdout is not None
    assert command.stdout.readline() == "began\n"
    command.send_signal(first)
    assert command.stdout.readline() == "noted\n"
    command.send_signal(second)
    assert command.wait(10) == -second
    command.stdout.close()
