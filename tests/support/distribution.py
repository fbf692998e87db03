"""Looks into what is to be published: it has nothing but the package, and the sdist also what builds it.

Usage: python distribution.py dist/fencepost-*.whl dist/fencepost-*.tar.gz. Exit status 1 names what does not belong.
"""

import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

IN_WHEEL = {"fencepost", "pyspark_fencepost"}
NOT_PUBLISHED = {"tests", ".ci", ".venv", "build", "results"}


def names_in(path: Path) -> list[str]:
    """Return the names of the files in a wheel or an sdist; of an sdist without the folder that has all of them."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return wheel.namelist()
    with tarfile.open(path) as sdist:
        return [name.partition("/")[2] for name in sdist.getnames()]


def foreign_in(path: Path, names: Iterable[str]) -> list[str]:
    """Return the names that do not belong into what is published."""
    tops = {name: name.partition("/")[0] for name in names}
    if path.suffix == ".whl":
        return [name for name, top in tops.items() if top not in IN_WHEEL and not top.endswith(".dist-info")]
    return [name for name, top in tops.items() if top in NOT_PUBLISHED]


def main(paths: Iterable[str]) -> int:
    """Check these distributions, and return the exit status."""
    status = 0
    for path in map(Path, paths):
        names = names_in(path)
        foreign = foreign_in(path, names)
        print(f"{path.name}: {len(names)} files, {path.stat().st_size >> 10} KiB")
        for name in foreign:
            print(f"  does not belong there: {name}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
