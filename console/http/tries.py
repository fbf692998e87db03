"""How many wrong tokens an address may try. Pure.

The rule: each address has its own limit, so a stranger who guesses locks nobody else out; neither the memory nor the
log grows with the number of addresses or tries. IPv6 addresses with the same first 64 bits count as one, because one
host may have all of them (RFC 4291).
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable

from .problems import TOO_MANY, Problem

TRIES, TRIES_IN_MS = 10, 60_000
MAX_ADDRESSES = 10_000  # above that the address whose latest wrong token is oldest is forgotten
LINE_EVERY_MS = 10_000


class Tries:
    """Counts wrong login tokens by client address. log: called with a line about them, at most once in
    LINE_EVERY_MS.
    """

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._wrong_ms: OrderedDict[str, list[int]] = OrderedDict()  # by address, the one of the latest try last
        self._not_logged = 0
        self._next_line_ms: int | None = None

    def __len__(self) -> int:
        return len(self._wrong_ms)

    def check(self, address: str, now_ms: int) -> None:
        """Raise Problem if this address tried too many wrong tokens. To be called before its token is compared."""
        found = self._wrong_ms.get(counted_as(address), ())
        if sum(now_ms - each < TRIES_IN_MS for each in found) >= TRIES:
            raise Problem(TOO_MANY, "this address sent too many wrong tokens", "wait a minute")

    def add(self, address: str, now_ms: int) -> None:
        """Count a wrong token of this address, and log it if LINE_EVERY_MS have passed since the last line. Forgets
        addresses whose latest wrong token is older than TRIES_IN_MS, and the oldest above MAX_ADDRESSES.
        """
        counted = counted_as(address)
        self._wrong_ms[counted] = [*self._wrong_ms.pop(counted, ()), now_ms][-TRIES:]
        while len(self) > MAX_ADDRESSES or now_ms - next(iter(self._wrong_ms.values()))[-1] >= TRIES_IN_MS:
            self._wrong_ms.popitem(last=False)
        self._not_logged += 1
        if self._next_line_ms is not None and now_ms < self._next_line_ms:
            return
        many = f"{self._not_logged} wrong tokens since the last such line, the latest"
        self._log(f"{'a wrong token' if self._not_logged == 1 else many} from {address}")
        self._not_logged, self._next_line_ms = 0, now_ms + LINE_EVERY_MS


def counted_as(address: str) -> str:
    """Return the key under which an address is counted: an IPv4 address itself, of an IPv6 address its first 64 bits,
    since one client usually has all addresses with the same ones.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(int(found) >> 64)
