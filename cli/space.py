"""A broker's disk that is nearly full, as one sentence for all commands that report it. Pure."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..client.admin.values import LowLogDir


def low_text(low: "LowLogDir") -> str:
    """Return a sentence: which directory, how many bytes are free, and what the broker refuses now."""
    where = f"the disk of broker {low.broker}, {low.path}, is nearly full: {low.usable_bytes:,} bytes are free"
    if low.floor_bytes is None:
        return where
    return f"{where}, {low.floor_bytes:,} stay free (storage.min.free.bytes), so produce requests are refused"
