"""`fencepost serve` on a machine that refuses a file: python unopenable_serve.py PART ERRNO serve …

Opening any path with PART in it fails with this error.
"""

import os
import sys

from fencepost.cli import main
from fencepost.effects.disk import File, SystemDisk


def refuse(part: str, number: int) -> None:
    original = SystemDisk.open

    def refusing_open(self: SystemDisk, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if part in path:
            raise OSError(number, os.strerror(number), path)
        return original(self, path, create=create, read_only=read_only)

    SystemDisk.open = refusing_open  # type: ignore[method-assign]


if __name__ == "__main__":
    refuse(sys.argv[1], int(sys.argv[2]))
    sys.argv[1:3] = []
    main()
