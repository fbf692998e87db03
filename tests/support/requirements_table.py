"""The table that `make requirements` prints: every behaviour of docs/requirements.md with the tests that show it."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Requirement(NamedTuple):
    """waits_for: what has to be there before a test can show all of it; "" where nothing is missing."""

    behaviour: str
    waits_for: str


def stated(document: Path) -> dict[str, Requirement]:
    """Return the requirements of the document by id, in its order."""
    rows = re.findall(r"^\| ([SC]-\d+) \| (.+) \| ?([^|]*?) ?\|$", document.read_text(), flags=re.MULTILINE)
    return {identifier: Requirement(behaviour, waits_for) for identifier, behaviour, waits_for in rows}


def render(document: Path, shown: Iterable[tuple[str, str]]) -> str:
    """Return the table as text: each requirement, how many tests show it, and their names without parameters; last,
    those without a test, and why.

    Raises: ValueError when a test names a requirement that the document does not state.
    """
    requirements = stated(document)
    tests: dict[str, dict[str, None]] = defaultdict(dict)
    for identifier, nodeid in shown:
        if identifier not in requirements:
            raise ValueError(f"{nodeid} names {identifier}, which {document.name} does not state")
        tests[identifier][nodeid.split("[")[0]] = None
    lines = []
    for identifier, (behaviour, waits_for) in requirements.items():
        waiting = f"  [waits for {waits_for}]" if waits_for else ""
        lines.append(f"{identifier:6} {len(tests[identifier]):3}  {behaviour}{waiting}")
        lines.extend(f"            {name}" for name in tests[identifier])
    required = [identifier for identifier in requirements if identifier.startswith("S-")]
    missing: dict[str, list[str]] = defaultdict(list)
    for identifier in required:
        if not tests[identifier]:
            missing[requirements[identifier].waits_for].append(identifier)
    count = len(required) - sum(map(len, missing.values()))
    lines.append(f"\n{count} of {len(required)} have a test; none: {' '.join(missing.pop('', ['-']))}")
    lines.extend(f"waits for {waits_for}: {' '.join(found)}" for waits_for, found in missing.items())
    return "\n".join(lines) + "\n"
