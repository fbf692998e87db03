"""What stands at a URL: a file of this machine, or an answer of a web server. Blocks; for workers.

The rule: it ends within a bounded time and gives a bounded number of bytes, whatever is there.
"""

import time
import urllib.request
from urllib.parse import urlsplit

SCHEMES = ("file", "http", "https")
PIECE_BYTES = 64 << 10


class CannotFetch(Exception):
    """It could not be had; says why, without showing what came."""


def scheme_of(url: str) -> str:
    """file, http or https. Raises ValueError: it is none of these, or names no place."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or not (parts.path if parts.scheme == "file" else parts.netloc):
        raise ValueError(f"{url!r} is no URL of {', '.join(SCHEMES)}")
    return parts.scheme


def fetch(url: str, timeout_s: float, most_bytes: int) -> bytes:
    """All of it. Raises CannotFetch."""
    end_s = time.monotonic() + timeout_s
    pieces: list[bytes] = []
    left = most_bytes
    try:
        scheme_of(url)
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            while (
                piece := answer.read1(min(PIECE_BYTES, left + 1)) if hasattr(answer, "read1") else answer.read(left + 1)
            ):
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    raise CannotFetch(f"it has more than {most_bytes} bytes")
                if time.monotonic() > end_s:
                    raise CannotFetch(f"it does not come within {timeout_s:g} s")
    except (OSError, ValueError) as error:  # urllib's own are OSErrors, and http.client's too long lines ValueErrors
        raise CannotFetch(str(getattr(error, "reason", "") or error) or type(error).__name__) from None
    return b"".join(pieces)
