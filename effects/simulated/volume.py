"""The contents of a disk in memory: directories by inode, and files in blocks that copies have in common.

The rule: a copy copies no bytes. A block is copied when it is first written after that, so that a test can hold
thousands of disks that differ by a few bytes. A block of NULs is not stored.
"""

from collections.abc import Iterator, Sequence

from .operations import Extend, Link, Operation, Rename, Truncate, Unlink, Write

BLOCK_BYTES = 4096
ROOT = 0
_NULS = bytes(BLOCK_BYTES)
_MANY_NULS = bytes(1 << 20)


class Content:
    """The bytes of one file. blocks: by their number in the file. owner: stands for the volume that may change them."""

    __slots__ = ("blocks", "owner", "size")

    def __init__(self, owner: object, blocks: dict[int, bytes] | None = None, size: int = 0) -> None:
        self.owner = owner
        self.blocks = {} if blocks is None else blocks
        self.size = size

    def copy(self, owner: object) -> "Content":
        """Return a copy that shares the blocks. owner: the volume that may write to it."""
        return Content(owner, self.blocks.copy(), self.size)

    def read(self, size: int, position: int) -> bytes:
        """Return `size` bytes from `position`; fewer at the end. Missing blocks are NUL bytes."""
        end = min(position + size, self.size)
        if position >= end:
            return b""
        first, last = position // BLOCK_BYTES, (end - 1) // BLOCK_BYTES
        if first == last:
            found = self.blocks.get(first, _NULS)
        else:
            found = b"".join([self.blocks.get(number, _NULS) for number in range(first, last + 1)])
        return found[position - first * BLOCK_BYTES : end - first * BLOCK_BYTES]

    def write(self, position: int, data: bytes) -> None:
        """Write the data at `position`, block by block; a gap before it is NUL bytes."""
        end = position + len(data)
        # So a journal file is prepared. NULs beyond the file's end need no blocks.
        if position >= self.size and _MANY_NULS.startswith(data):
            self.size = end if data else self.size
            return
        for number in range(position // BLOCK_BYTES, -(-end // BLOCK_BYTES)):
            start = number * BLOCK_BYTES
            low, high = max(position, start), min(end, start + BLOCK_BYTES)
            block = data[low - position : high - position]
            if high - low < BLOCK_BYTES:
                old = self.blocks.get(number, _NULS)
                block = old[: low - start] + block + old[high - start :]
            self._put(number, block)
        if data:
            self.size = max(self.size, end)

    def truncate(self, size: int) -> None:
        """Cut the file to this size, or extend it with NUL bytes."""
        if size < self.size:
            last, inside = divmod(size, BLOCK_BYTES)
            for number in [number for number in self.blocks if number >= last]:
                block = self.blocks.pop(number)
                if number == last and inside:
                    self._put(last, block[:inside] + _NULS[inside:])
        self.size = size

    def fingerprint(self) -> int:
        """Return a number that is equal for equal contents, within this process. It is quick because bytes objects
        cache their hash.
        """
        return hash((self.size, frozenset(self.blocks.items())))

    def _put(self, number: int, block: bytes) -> None:
        """Set a block. One of NUL bytes is not stored."""
        if block == _NULS:
            self.blocks.pop(number, None)
        else:
            self.blocks[number] = block


class Volume:
    """Inodes and the names that lead to them. A crash may lose a name but not its inode, or the reverse."""

    def __init__(self) -> None:
        self.directories: dict[int, dict[str, int]] = {ROOT: {}}
        self._contents: dict[int, Content] = {}
        self._owner = object()  # contents of another owner are shared: copy before a write

    def copy(self) -> "Volume":
        """Return a copy that shares the contents of files until either is written."""
        twin = Volume()
        twin.directories = {inode: names.copy() for inode, names in self.directories.items()}
        twin._contents = self._contents.copy()
        self._owner = object()  # this volume, too, copies a file before it is written
        return twin

    def prune(self) -> "Volume":
        """Return a copy without the inodes that have no path."""
        twin = self.copy()
        reached = {inode for _, inode in twin.walk()} | {ROOT}
        twin.directories = {inode: names for inode, names in twin.directories.items() if inode in reached}
        twin._contents = {inode: content for inode, content in twin._contents.items() if inode in reached}
        return twin

    def apply(self, operation: Operation) -> None:
        """Apply the operation, even if earlier ones were not applied. Syncs and notes change nothing."""
        match operation:
            case Write(inode=inode, position=position, data=data):
                self._writable(inode).write(position, data)
            case Truncate(inode=inode, size=size):
                self._writable(inode).truncate(size)
            case Extend(inode=inode, size=size):
                content = self._writable(inode)
                content.truncate(max(size, content.size))
            case Link(directory=directory, name=name, inode=inode, is_directory=is_directory):
                self._names(directory)[name] = inode
                if is_directory:
                    self._names(inode)
                else:
                    self._writable(inode)
            case Unlink(directory=directory, name=name, inode=inode):
                self._forget_name(directory, name, inode)
            case Rename(directory=directory, name=name, inode=inode):
                self._forget_name(directory, name, inode)
                self._names(operation.new_directory)[operation.new_name] = inode

    def drop_inode(self, inode: int) -> None:
        """Remove an inode that has no name and is not open."""
        self._contents.pop(inode, None)
        self.directories.pop(inode, None)

    def content(self, inode: int) -> Content:
        """Return the content of an inode, for reading."""
        return self._contents[inode]

    def lookup(self, parts: Sequence[str], start: int = ROOT) -> int | None:
        """Return the inode of a path, relative to the directory `start`; None if it does not exist."""
        inode = start
        for name in parts:
            names = self.directories.get(inode)
            if names is None or (found := names.get(name)) is None:
                return None
            inode = found
        return inode

    def walk(self) -> Iterator[tuple[str, int]]:
        """Yield every path and its inode, parents first."""
        waiting = [("", ROOT)]
        while waiting:
            path, directory = waiting.pop()
            for name, inode in sorted(self.directories[directory].items()):
                yield f"{path}/{name}", inode
                if inode in self.directories:
                    waiting.append((f"{path}/{name}", inode))

    def used_bytes(self) -> int:
        return sum(content.size for content in self._contents.values())

    def fingerprint(self) -> int:
        """Return a number that is equal for equal trees, within this process. Inode numbers do not matter."""
        tree = [
            (path, None if inode in self.directories else self._contents[inode].fingerprint())
            for path, inode in self.walk()
        ]
        return hash(frozenset(tree))

    def highest_inode(self) -> int:
        return max((*self.directories, *self._contents))

    def _names(self, directory: int) -> dict[str, int]:
        """Return the entries of a directory: inodes by name. It is created if it does not exist."""
        return self.directories.setdefault(directory, {})

    def _forget_name(self, directory: int, name: str, inode: int) -> None:
        """Remove a directory's entry, if it still leads to this inode."""
        names = self._names(directory)
        if names.get(name) == inode:
            del names[name]

    def _writable(self, inode: int) -> Content:
        """Return the content of an inode for writing: a copy if another volume shares it, a new one if there is
        none.
        """
        content = self._contents.get(inode)
        if content is None:
            content = self._contents[inode] = Content(self._owner)
        elif content.owner is not self._owner:
            content = self._contents[inode] = content.copy(self._owner)
        return content
