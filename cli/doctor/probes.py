"""Name resolution and TCP connections, for `doctor`."""

import asyncio
import time

from ...effects.net import SystemNet, resolve
from ...effects.threads import CannotStartThread


async def addresses(host: str) -> list[str]:
    """Return the addresses of a name; empty if it does not resolve."""
    try:
        found = await resolve(host, None)
    except CannotStartThread:
        raise
    except OSError:
        return []
    return list(dict.fromkeys(str(address[0]) for _, address in found))


async def connects(host: str, port: int, within_ms: int) -> tuple[float, str]:
    """Return (how long the TCP connection took in ms, why it failed or "")."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(within_ms / 1000):
            transport, _ = await SystemNet().connect(asyncio.Protocol, host, port)
            transport.close()
    except CannotStartThread:
        raise
    except TimeoutError:
        return 0.0, f"no answer within {within_ms / 1000:.0f} s"
    except OSError as error:
        return 0.0, _reason(error)
    return (time.monotonic() - began) * 1000, ""


def _reason(error: OSError) -> str:
    """Return why a connection failed, in the operating system's words."""
    text = error.strerror or str(error)
    if "Connect call failed" in text:  # asyncio's wording; the errno has the cause
        import os

        text = os.strerror(error.errno) if error.errno else "connection refused"
    return text[:1].lower() + text[1:]
