"""The directories that this process has locked: they are reached by their descriptors, even if they are moved.

The rule: while a directory is held, nothing below its path is looked up from the root, so what somebody put at its path
is neither read nor changed. An operation that changes something first checks whether the path still leads to the held
directory. If not, it raises DirectoryMoved and has done nothing: the process must end, because others do not find its
files. Source: Linux `openat(2)`.
"""

import os
import stat

from ..disk_errors import DirectoryMoved


class HeldDirectories:
    """The locked directories of one disk, each under the path by which it was locked."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, str]] = {}  # path with a slash at its end → descriptor, absolute path

    def add(self, directory: str, fd: int) -> None:
        """From now on reach this directory by `fd`, which the caller closes after remove()."""
        self._held[_with_slash(directory)] = (fd, os.path.abspath(directory))

    def remove(self, directory: str) -> None:
        """Forget a directory; to be called before its descriptor is closed. May be called again."""
        self._held.pop(_with_slash(directory), None)

    def find(self, path: str) -> tuple[str, int | None]:
        """Return (path, descriptor) as functions of `os` take them with dir_fd=: a path relative to the held
        directory and its descriptor, or the path unchanged and None.
        """
        for prefix, (fd, _) in self._held.items():
            if path.startswith(prefix):
                return path[len(prefix) :].lstrip("/") or ".", fd
            if path == prefix[:-1]:
                return ".", fd
        return path, None

    def find_to_change(self, path: str) -> tuple[str, int | None]:
        """Like find(), for an operation that changes something. Raises DirectoryMoved if the directory is not at its
        path now.
        """
        name, fd = self.find(path)
        if fd is not None:
            self._check(fd)
        return name, fd

    def _check(self, fd: int) -> None:
        """Raise DirectoryMoved if the path of this directory leads to another one now. Other errors are ignored."""
        path = next(absolute for held, absolute in self._held.values() if held == fd)
        try:
            found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            raise DirectoryMoved(path) from None
        except OSError:
            return
        if not os.path.samestat(found, os.fstat(fd)):
            raise DirectoryMoved(path)


def make_below(name: str, mode: int, at: int) -> None:
    """Create a directory and its missing parents, relative to the descriptor `at`; they may exist.

    Like os.makedirs() with exist_ok=True, which has no dir_fd.
    """
    try:
        os.mkdir(name, mode, dir_fd=at)
    except FileNotFoundError:
        parent = os.path.dirname(name)
        if not parent:
            raise
        make_below(parent, mode, at)
        make_below(name, mode, at)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=at).st_mode):
            raise


def _with_slash(directory: str) -> str:
    """Return the path with one slash at its end."""
    return f"{directory.rstrip('/')}/"
