"""`fencepost serve` in a process whose disk fails: python failing_serve.py SUFFIX NUMBER serve …

The NUMBER-th sync of a file, or of a directory, whose path ends in SUFFIX, counted from when the broker is ready, fails
with EIO. What it should have covered is not synced.
"""

import errno
import os
import sys
import threading
from typing import Any

from fencepost.broker.broker import Broker
from fencepost.cli import main
from fencepost.effects.disk import SystemDisk, SystemFile


class Faults:
    def __init__(self, suffix: str, number: int) -> None:
        self.suffix = suffix
        self.left = number
        self.armed = False
        self.lock = threading.Lock()

    def strike(self, path: str) -> None:
        with self.lock:
            if not self.armed or not path.endswith(self.suffix):
                return
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def install(faults: Faults) -> None:
    sync, sync_directory, start = SystemFile.sync, SystemDisk.sync_directory, Broker.start
    write_blocks_synced = SystemFile.write_blocks_synced

    def failing_sync(self: SystemFile) -> None:
        faults.strike(self.path)
        sync(self)

    def failing_write_blocks_synced(self: SystemFile, *arguments: Any) -> bool:
        faults.strike(self.path)
        return write_blocks_synced(self, *arguments)

    def failing_sync_directory(self: SystemDisk, path: str) -> None:
        faults.strike(path)
        sync_directory(self, path)

    async def armed_start(self: Broker) -> Any:
        await start(self)
        faults.armed = True

    SystemFile.sync = failing_sync  # type: ignore[method-assign]
    SystemFile.write_blocks_synced = failing_write_blocks_synced  # type: ignore[method-assign]
    SystemDisk.sync_directory = failing_sync_directory  # type: ignore[method-assign]
    Broker.start = armed_start  # type: ignore[method-assign]


if __name__ == "__main__":
    install(Faults(sys.argv[1], int(sys.argv[2])))
    sys.argv[1:3] = []
    main()
