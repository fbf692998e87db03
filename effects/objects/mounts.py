"""The file system of a directory, and whether several brokers may use it as an object store.

The rule: an NFS client keeps what it has listed for up to a minute, and a take-over that does not see the newest round
would lose it. Mounted with `noac` the client asks the server each time. Source: nfs(5); proc(5) for the table of
mounts.
"""

import os
import re
from typing import NamedTuple

TABLE = "/proc/self/mountinfo"
NFS = ("nfs", "nfs4")
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system. point: the path where it is mounted. kind: its type, such as ext4."""

    point: str
    kind: str
    options: frozenset[str]

    @property
    def is_cached(self) -> bool:
        """Whether listings may be outdated: it is NFS mounted without noac."""
        return self.kind in NFS and "noac" not in self.options


def mount_of(path: str, table: str | None = None) -> Mount | None:
    """Return the mount of a path, which need not exist; None if the system does not tell.

    table: the text of /proc/self/mountinfo; None: read it.
    """
    if table is None:
        try:
            with open(TABLE, encoding="utf-8", errors="surrogateescape") as file:
                table = file.read()
        except OSError:
            return None
        path = os.path.realpath(path)
    found: Mount | None = None
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if len(fields) < 6 or len(rest) < 3:
            continue
        point = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        is_above = path == point or path.startswith(point.rstrip("/") + "/")
        # A later mount at the same point hides the earlier one.
        if is_above and (found is None or len(point) >= len(found.point)):
            found = Mount(point, rest[0], frozenset(fields[5].split(",") + rest[2].split(",")))
    return found
