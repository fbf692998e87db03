"""Inputs on which a target has failed: each line of found.txt is a target's name and the bytes in hex."""

from collections import defaultdict
from pathlib import Path


def _read() -> dict[str, list[bytes]]:
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    for line in (Path(__file__).parent / "found.txt").read_text().splitlines():
        words = line.partition("#")[0].split()
        if words:
            name, data = words
            found[name].append(bytes.fromhex(data))
    return dict(found)


FOUND = _read()
