"""The table that `make requirements` prints: every behaviour of docs/requirements.md with the tests that show it."""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path


def stated(document: Path) -> dict[str, str]:
    """The requirements of the document, id → behaviour, in its order."""
    rows = re.findall(r"^\| ([SC]-\d+) \| (.+) \|$", document.read_text(), flags=re.MULTILINE)
    return dict(rows)


def render(document: Path, shown: Iterable[tuple[str, str]]) -> str:
    """Each requirement, how many tests show it, and their names without parameters; last, those with none.

    Raises: ValueError when a test names a requirement that the document does not state.
    """
    requirements = stated(document)
    tests: dict[str, dict[str, None]] = defaultdict(dict)
    for identifier, nodeid in shown:
        if identifier not in requirements:
            raise ValueError(f"{nodeid} names {identifier}, which {document.name} does not state")
        tests[identifier][nodeid.split("[")[0]] = None
    lines = []
    for identifier, behaviour in requirements.items():
        lines.append(f"{identifier:6} {len(tests[identifier]):3}  {behaviour}")
        lines.extend(f"            {name}" for name in tests[identifier])
    required = [identifier for identifier in requirements if identifier.startswith("S-")]
    missing = [identifier for identifier in required if not tests[identifier]]
    lines.append(f"\n{len(required) - len(missing)} of {len(required)} have a test; none: {' '.join(missing)}")
    return "\n".join(lines) + "\n"
