"""Disk: files, directories and the locks on them. All access to the data directory goes through here.

The interface is in `interface.py`, the system's disk in `system.py`; simulated ones are in `effects/simulated/`.
"""

from ..disk_errors import CannotOpen as CannotOpen
from ..disk_errors import DirectoryMoved as DirectoryMoved
from ..disk_errors import DiskFull as DiskFull
from ..disk_errors import DiskLow as DiskLow
from ..disk_errors import TryLater as TryLater
from ..gathering import Buffer as Buffer
from ..threads import CannotStartThread as CannotStartThread
from ..threads import Executor as Executor
from .async_writer import AsyncWriter as AsyncWriter
from .interface import Disk as Disk
from .interface import File as File
from .locks import AlreadyLocked as AlreadyLocked
from .locks import Lock as Lock
from .locks import SystemLock as SystemLock
from .system import SystemDisk as SystemDisk
from .system import SystemFile as SystemFile
