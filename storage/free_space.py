"""Logs when the disk is low and when it has room again: one message for each change, with the numbers and the setting.

The rule: this module only logs and counts; Store decides which requests are refused. There is room again only once the
free space exceeds the floor by ROOM_AGAIN_BYTES, so that a disk at its floor does not fill the log with messages.
"""

import logging

logger = logging.getLogger("fencepost.storage")
ROOM_AGAIN_BYTES = 4 << 20  # above the floor: so much must be free before the disk counts as having room again


class FreeSpace:
    """Watches the free space of one directory, and logs when it becomes low and when it is enough again.

    usable_bytes: free bytes, less those that are still in memory and will be written there.
    """

    def __init__(self, directory: str, floor_bytes: int) -> None:
        """floor_bytes: storage.min.free.bytes, below which the disk is low."""
        self._directory = directory
        self._floor_bytes = floor_bytes
        self.usable_bytes = 0
        self.low = False  # whether the newest log message says that space is low
        self.refusals = 0  # since the start

    def look(self, usable_bytes: int) -> None:
        """Note the bytes usable now, and log a change between low and enough."""
        self.usable_bytes = usable_bytes
        if usable_bytes <= self._floor_bytes:
            self._say_low()
        elif self.low and usable_bytes >= self._floor_bytes + ROOM_AGAIN_BYTES:
            self.low = False
            text = "the disk of %s has room again: %s; requests refused since the start: %d"
            logger.warning(text, self._directory, self._numbers, self.refusals)

    def refuse(self) -> str:
        """Count a request that is refused for lack of space. Returns the reason, for its answer."""
        self.refusals += 1
        if self.usable_bytes < self._floor_bytes + ROOM_AGAIN_BYTES:  # else it is the request that is large
            self._say_low()
        return f"the disk is nearly full: {self._numbers}; nothing was written, try again later"

    def _say_low(self) -> None:
        """Log once that the disk is nearly full."""
        if self.low:
            return
        self.low = True
        what = "produce requests and changes are refused until there is room; reads, commits and deletions go on"
        logger.error("the disk of %s is nearly full: %s; %s", self._directory, self._numbers, what)

    @property
    def _numbers(self) -> str:
        """The text with the free bytes and the floor, for log messages."""
        return f"{self.usable_bytes:,} bytes are free, {self._floor_bytes:,} stay free (storage.min.free.bytes)"
