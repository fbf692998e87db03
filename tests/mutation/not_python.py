"""Which changes of a session of cosmic-ray are no Python, as `not` before a walrus is: their ids, one a line.

Run by the Python that cosmic-ray is installed for, in the folder that the session belongs to.
"""

import sys
from pathlib import Path

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from cosmic_ray.work_db import WorkDB, use_db


def main(session: str) -> None:
    with use_db(session, WorkDB.Mode.open) as database:
        for item in database.work_items:
            (change,) = item.mutations
            operator = get_operator(change.operator_name)(**change.operator_args)
            changed = mutate_code(Path(change.module_path).read_text(), operator, change.occurrence)
            if changed is None or not is_python(changed):
                print(item.job_id)


def is_python(source: str) -> bool:
    try:
        compile(source, "changed", "exec")
    except SyntaxError:
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1])
