"""`fencepost demo --console`: runs the transactions slowly, while the web console shows them in a browser.

The steps and checks are the same as in transactions.py, with pauses between the lines, so that each state can be seen.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..output.failures import Failure
from ..output.interruption import Interruption
from ..output.writing import is_terminal, show
from . import transactions
from .flaky_proxy import FlakyProxy
from .stage import Broker, say

CHECK_S = 0.1
ADDRESS = "127.0.0.1:8082"
ANY_PORT = "127.0.0.1:0"


def play(seed: int, pace_s: float, interruption: Interruption) -> None:
    """Run the steps of transactions.py slowly while the web console shows them; on a terminal, the console then stays
    until Ctrl-C. Exits with 1 if a result is wrong.
    """

    def slowly(line: str) -> None:
        say(line)
        pause(pace_s, interruption)

    with tempfile.TemporaryDirectory(prefix="fencepost-demo-") as directory, FlakyProxy(seed, 0.0) as proxy:
        broker = Broker(directory, proxy.port)
        try:
            proxy.target_port = broker.start()
            with _console(f"127.0.0.1:{proxy.port}") as url:
                say(f"console   {url}#/transactions")
                pause(pace_s, interruption)
                results = transactions.Results(f"127.0.0.1:{proxy.port}", proxy, interruption, slowly)
                transactions.run(results)
                show()
                show("✘ NOT all or nothing" if results.wrong else "✔ all or nothing, and one owner")
                if is_terminal():
                    say("the console stays open until Ctrl-C")
                    pause(float("inf"), interruption)
        finally:
            broker.stop()
    sys.exit(1 if results.wrong else 0)


def pause(seconds: float, interruption: Interruption) -> None:
    """Sleep. Raises KeyboardInterrupt after a signal."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        interruption.check()
        time.sleep(min(CHECK_S, left))


@contextmanager
def _console(bootstrap: str) -> Iterator[str]:
    """Run a console as a process, at its usual port if that is free. Yields its URL. Raises Failure if none starts."""
    for address in (ADDRESS, ANY_PORT):
        command = [sys.executable, "-P", "-m", "fencepost", "console", "-b", bootstrap]
        command += ["--http", address, "--allow-changes"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                if line:
                    yield line.split()[1]
                    return
            finally:
                process.terminate()
    raise Failure("the console did not start", f"fencepost console -b {bootstrap} says why")
