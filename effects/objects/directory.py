"""An object store in a directory, for URLs of the form `file:///path`.

The rule: an object is written under a temporary name, synced, and linked to its own name, which fails if that name
exists; then the directory is synced. So an object is complete or does not exist, and of several clients that create one
name only one succeeds. Source: `link(2)`, and `open(2)` on NFS, where the answer to a link may be lost: then the file
has two links all the same.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from urllib.parse import quote

from .interface import Content, Exists, Found, Missing, Refused, Unclear

WRITING = ".writing"  # the folder of unfinished objects; a crash leaves some
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
ATTEMPTS = 10  # to link: another client may remove the new folder of the object, because it is still empty


class DirectoryObjects:
    """An object store in a directory, which is created with the first object. Its parent must exist."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/") or "/"

    @property
    def where(self) -> str:
        return f"file://{quote(self._root)}"

    def create(self, name: str, content: Content) -> None:
        """Create an object, durably, if none has its name: link a synced temporary file. Raises Exists."""
        with self._converted(name), self._written(content) as temporary:
            path = self._path(name)
            for attempt in range(ATTEMPTS):
                self._make_folders(os.path.dirname(path))
                try:
                    os.link(temporary, path)
                except FileNotFoundError:
                    if attempt == ATTEMPTS - 1:
                        raise
                    continue
                except FileExistsError:
                    if os.stat(temporary).st_nlink != 2:  # with 2, the existing object is the one that was linked here
                        raise Exists(name, "an object has this name") from None
                break
            _sync_directory(os.path.dirname(path))

    def put(self, name: str, content: bytes) -> None:
        """Create an object, or replace it, durably: write and sync a temporary file, then rename it."""
        with self._converted(name), self._written(content) as temporary:
            path = self._path(name)
            self._make_folders(os.path.dirname(path))
            os.replace(temporary, path)
            _sync_directory(os.path.dirname(path))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of an object from `start` on (None: all). Raises Missing."""
        with self._converted(name):
            try:
                with open(self._path(name), "rb") as file:
                    file.seek(start)
                    return file.read(-1 if length is None else length)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise Missing(name, "there is no such object") from None

    def list(self, prefix: str, after: str = "") -> list[Found]:
        """Return the objects below a prefix, in the order of names, with names after `after`."""
        with self._converted(prefix):
            return [found for found in self._walk(self._path(prefix)) if found.name > after]

    def _walk(self, folder: str) -> Iterator[Found]:
        """Yield the objects below a folder in the order of names. When those of one listing are done, the folder is
        listed again, until it has no later names.

        So if others create objects meanwhile, and one of them is found, all that were created before it are found too.
        """
        last = ""
        while True:
            try:
                with os.scandir(folder) as entries:
                    following = sorted((entry for entry in entries if entry.name > last), key=lambda one: one.name)
            except (FileNotFoundError, NotADirectoryError):
                return
            if not following:
                return
            for entry in following:
                if entry.is_dir():
                    yield from self._walk(entry.path)
                else:
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        yield Found(os.path.relpath(entry.path, self._root), entry.stat().st_size)
            last = following[-1].name

    def delete(self, name: str) -> None:
        """Remove an object, and its folder if that is empty then. Does nothing if it does not exist."""
        with self._converted(name):
            path = self._path(name)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                _sync_directory(os.path.dirname(path))
            with contextlib.suppress(OSError):  # remove its folder, if that is empty now
                os.rmdir(os.path.dirname(path))

    def _path(self, name: str) -> str:
        """Return the path of the object with this name."""
        return os.path.join(self._root, name.rstrip("/"))

    @contextlib.contextmanager
    def _written(self, content: Content) -> Iterator[str]:
        """Write the content to a temporary file, and sync it. Yields its path; removes it afterwards."""
        folder = os.path.join(self._root, WRITING)
        self._make_folders(folder)
        path = os.path.join(folder, secrets.token_hex(16))
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        try:
            try:
                for buffer in content if isinstance(content, list) else [content]:
                    left = memoryview(buffer)
                    while left:
                        left = left[os.write(file, left) :]
                os.fsync(file)
            finally:
                os.close(file)
            yield path
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    def _make_folders(self, path: str) -> None:
        """Create a folder below the root, with its parents, durably. The root's own parent must exist."""
        missing: list[str] = []
        while not os.path.isdir(path) and path != os.path.dirname(self._root):
            missing.append(path)
            path = os.path.dirname(path)
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(each, 0o750)
            _sync_directory(os.path.dirname(each))

    @contextlib.contextmanager
    def _converted(self, name: str) -> Iterator[None]:
        """Convert an OSError of the block to Refused or Unclear. name: of the object."""
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            parent = os.path.dirname(self._root)
            if error.errno in _DENIED:
                hint = "give the user of this process the right to write there, or name another directory"
                raise Refused(name, f"{self._root}: {reason}", hint) from None
            if error.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.isdir(parent):
                raise Refused(name, f"{parent} is no directory", "make it first, or name another directory") from None
            if error.errno == errno.ENOTDIR:
                raise Refused(name, f"{self._root}: {reason}", "name a directory") from None
            raise Unclear(name, f"{self._root}: {reason}") from None


def _sync_directory(path: str) -> None:
    """Return when all creations and removals in this directory are on the device."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
