"""Write into ours.txt what our broker answers to the rows of our own APIs: `make rights`, and then read the diff.

python -m rights.own_record [ROW ...]      # rows that ours.txt does not have yet, and those that are named

A row that ours.txt has already is left as it is unless it is named: test_rights.py is to fail if its answer changed.
Which rights an API needs by these answers is compared with the table in docs/security.md, which is written by hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
ANSWERS = HERE / "ours.txt"
sys.path[:0] = map(str, (HERE.parents[1] / "support").glob("**/"))


def main() -> int:
    from .grants import rules
    from .own_broker import own_broker
    from .own_rows import OWN_ROWS, prepare_ledger
    from .table import Answers, read, text_of

    users, named = rules(), sys.argv[1:]
    cells = {f"{row.name} v{version}": (row, version) for row in OWN_ROWS for version in row.versions}
    unknown = set(named) - {row.name for row in OWN_ROWS}
    if unknown:
        print("no such row in own_rows.py or own_apis.py:", ", ".join(sorted(unknown)))
        return 1
    before = read(ANSWERS, users)
    answers: Answers = {}
    with own_broker() as world:
        prepare_ledger(world)
        for key, (row, version) in cells.items():
            if key in before and row.name not in named:
                answers[key] = before[key]
                continue
            answers[key] = {what: row.ask(world, what, version) for what in users}
            print(text_of({key: answers[key]}), flush=True)
    ANSWERS.write_text(text_of(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
