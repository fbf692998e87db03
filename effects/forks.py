"""File descriptors that a forked child must not keep: the server's sockets, and the lock of a data directory.

The rule: a copy in a child keeps a port taken, a connection open and a directory locked, even after the parent has
ended. So in the child each of them is replaced by the null device. The number stays in use there: if code in the child
closes it, it closes no other file. Source: `fork(2)`, `dup2(2)`, `flock(2)`.
"""

import os

_kept_from_children: set[int] = set()


def keep_from_children(descriptor: int) -> None:
    """Have this file or socket replaced by the null device in children that are forked from now on. -1 is ignored."""
    if descriptor >= 0:
        _kept_from_children.add(descriptor)


def forget(descriptor: int) -> None:
    """Undo keep_from_children(). To be called before the descriptor is closed, since its number may be used again."""
    _kept_from_children.discard(descriptor)


def _replace_in_child() -> None:
    """Replace the descriptors that a child must not have by /dev/null. Called in a forked child."""
    if not _kept_from_children:
        return
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in _kept_from_children:
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)
    _kept_from_children.clear()


os.register_at_fork(after_in_child=_replace_in_child)
