"""`fencepost demo --console`: the transactions of the demo run, and the console shows them meanwhile."""

import json
import subprocess
import sys
import urllib.request

import pytest


@pytest.mark.slow
def test_transactions_of_the_demo_appear_in_the_consoles_snapshot() -> None:
    command = [sys.executable, "-m", "fencepost", "demo", "--console", "--pace", "200ms"]
    seen: set[str] = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        url = ""
        for line in process.stdout:
            lines.append(line)
            if "console   " in line:
                url = line.split()[1].partition("#")[0]
            elif url and line.startswith("  "):  # a result of a step
                with urllib.request.urlopen(url + "v1/snapshot", timeout=20) as answer:
                    seen |= {each["type"] for each in json.load(answer)["recent"]}
        assert process.wait(60) == 0, "".join(lines)
    assert "all or nothing, and one owner" in lines[-1]
    assert {"txn.begin", "txn.commit"} <= seen
