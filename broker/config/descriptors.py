"""How the file descriptors of the process are divided among connections, files of logs, and everything else.

The rule: clients never get a descriptor that a checkpoint, a flush or the journal may need, because a write that fails
halts the broker. A connection costs one from the moment the kernel has accepted it, so no more connections may wait for
the broker than the reserve has room for. Kafka leaves this to the administrator; a limit of 1,024 is common. Pure.
"""

from dataclasses import dataclass

from ...storage.log.open_files import most_lent

RESERVE = (
    256  # journal, checkpoints, snapshots, compactions, listeners, standard streams, connections refused, half_sent
)
LARGEST_SHARE = 4  # where descriptors are few, open files and the reserve get one in LARGEST_SHARE each
LEAST_OPEN_FILES = 64
ENOUGH_OPEN_FILES = 8192  # three a partition; the default if connections do not need the descriptors
LEAST_DESCRIPTORS = 192
BACKLOG = 1024
HALF_SENT = 4096


@dataclass(frozen=True, slots=True)
class Shares:
    """How many connections and open files of logs there may be at one time.

    backlog: connections that the kernel may hold before the broker accepts them. half_sent: connections with a large
    reply under way, each of which takes one more descriptor.
    """

    connections: int
    open_files: int
    backlog: int
    half_sent: int


def shares(descriptors: int, max_open_files: int, max_connections: int) -> Shares:
    """Divide this number of file descriptors, which must be at least LEAST_DESCRIPTORS, among connections, files of
    logs, and the reserve. Connections in the backlog, and additional descriptors of large replies, are taken from the
    reserve and from what max_connections leaves free.
    """
    share = descriptors // LARGEST_SHARE
    reserve = min(RESERVE, share)
    open_files = min(max_open_files, max(share, LEAST_OPEN_FILES))
    connections = descriptors - open_files - reserve
    spare = max(0, connections - max_connections)
    waiting = reserve // 16
    lent = most_lent(open_files)
    return Shares(
        connections,
        open_files,
        backlog=min(BACKLOG, reserve // 2 - waiting - lent + spare // 2),
        half_sent=min(HALF_SENT, waiting + spare // 4),
    )
