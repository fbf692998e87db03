"""What was not tested, and for want of what: one line for all runs of `make test`.

Each run notes its skipped tests in the file that UNTESTED names (tests/conftest.py); this module, as a program, says
them.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

VARIABLE = "UNTESTED"
LONGEST = 70


def note(reports: Iterable[Any]) -> None:
    """Append the reasons of these skipped tests to the file that a variable of the environment names, if it is set."""
    if path := os.environ.get(VARIABLE):
        reasons = [str(report.longrepr[2]) for report in reports if isinstance(report.longrepr, tuple)]
        with Path(path).open("a") as file:
            file.writelines(" ".join(reason.split()) + "\n" for reason in reasons)


def line_of(reasons: Sequence[str]) -> str:
    """Return one line with each reason once, the most frequent first, in its short form."""
    counted = Counter(map(_short, reasons))
    if not counted:
        return "nothing was left out: all that these tests need is here"
    named = [f"{count} as {reason}" for reason, count in counted.most_common()]
    return f"NOT TESTED HERE, {len(reasons)} tests: " + "; ".join(named)


def _short(reason: str) -> str:
    """Return the reason up to the first colon, semicolon, bracket or dash, LONGEST characters at most."""
    text = re.split(r"[:;(]| — ", reason.removeprefix("Skipped: "), maxsplit=1)[0].strip()
    return text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"


if __name__ == "__main__":
    noted = Path(sys.argv[1])
    sys.stdout.write(line_of(noted.read_text().splitlines() if noted.exists() else []) + "\n")
