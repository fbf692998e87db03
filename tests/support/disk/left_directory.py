"""What a simulated broker has on its disk, copied to real files as a killed process would leave it."""

from pathlib import Path

from fencepost.effects.disk import Disk


def left_in(target: Path, disk: Disk, source: str) -> Path:
    """Copy the data directory at `source`, without its lock. Returns `target`."""
    target.mkdir()
    for name in disk.list(source):
        path = f"{source}/{name}"
        if disk.is_directory(path):
            left_in(target / name, disk, path)
        elif name != "lock":
            file = disk.open(path, read_only=True)
            (target / name).write_bytes(file.read(file.size(), 0))
            file.close()
    return target
