"""Reads the files that deploy a broker, for tests that do what those files say."""

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "docs" / "deploy"
DATA = "/var/lib/fencepost"
HUNG_S = 60


def list_after(word: str, text: str) -> list[str]:
    """Return the JSON list that follows this word in the text."""
    found = re.search(rf"^ *{re.escape(word)} *(\[.*\])$", text, flags=re.MULTILINE)
    assert found, word
    words: list[str] = json.loads(found[1])
    return words


def address_of(broker: subprocess.Popen[str]) -> str:
    assert broker.stdout is not None
    for line in broker.stdout:
        if line.startswith("ready"):
            return line.split()[-1]  # of several, the last is the one for programs inside the container
    raise AssertionError(broker.communicate()[1])
