"""What the owner of a store does all the time: it shows that it is alive, and sends its clients away while it is not.

The rules: others take over when nothing came for a lease, so an owner with nothing to write writes an empty round
(write of the journal) often enough. If it cannot create one for a lease, because it alone is cut off from the store,
others may have taken over. Its clients would not learn that: their requests wait here, and it still names itself as the
leader. So their connections are closed, and new ones refused, until it creates a round again; then nobody has taken
over. Without a broker that waits, clients stay, and can read.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

log = logging.getLogger("fencepost.broker")

Pause = Callable[[float], Awaitable[bool]]
"""Wait this number of seconds. Returns whether the broker is stopping."""
LOOKS_A_HEARTBEAT, LOOKS_A_LEASE = 2, 24


class Beating(Protocol):
    """The methods of Rounds that a heartbeat uses. finished: how many rounds (writes of the journal) have ended."""

    finished: int

    @property
    def is_idle(self) -> bool:
        """Whether no round (write of the journal) is open or being written."""
        ...

    def sync_soon(self) -> None:
        """Write and sync all that was appended so far, in every durability mode; with nothing new, write an empty
        round.
        """
        ...


class Refusing(Protocol):
    """The methods of Server that send clients away and take them again."""

    def turn_away(self) -> None:
        """Close all connections, and refuse new ones."""
        ...

    def welcome(self) -> None:
        """Accept connections again."""
        ...


class Cut(Protocol):
    """What is known of the owner's connection to its store."""

    def since_created_ms(self) -> int:
        """Return for how many ms no round (write of the journal) was created in the store."""
        ...

    def waiting_nodes(self) -> list[int]:
        """Return the node ids of the brokers that wait to take over."""
        ...


async def beat(rounds: Beating, heartbeat_ms: int, pause: Pause) -> None:
    """Write an empty round to the journal whenever nothing was written for a heartbeat, and at most half of one longer.

    So others see something at least every one and a half heartbeats, which is less than a lease. The first round shows
    at once that the broker has loaded what it had to (silence.py). Mostly the start has just begun to write one.
    """
    if rounds.is_idle:
        rounds.sync_soon()
    finished, quiet = -1, 0
    while not await pause(heartbeat_ms / LOOKS_A_HEARTBEAT / 1000):
        if rounds.finished != finished or not rounds.is_idle:
            finished, quiet = rounds.finished, 0
            continue
        quiet += 1
        if quiet >= LOOKS_A_HEARTBEAT:
            rounds.sync_soon()
            finished, quiet = finished + 1, 0  # the empty round is no sign of other work


async def send_clients_away(cut: Cut, server: Refusing, lease_ms: int, pause: Pause) -> None:
    """Send clients away while no round was created in the store for a lease, and a broker waits to take over."""
    is_away = False
    while not await pause(lease_ms / LOOKS_A_LEASE / 1000):
        is_cut_off = cut.since_created_ms() >= lease_ms
        nodes = cut.waiting_nodes()
        if is_cut_off and nodes and not is_away:
            is_away = True
            text = "clients are sent away: nothing could be created in the store for %d ms, so broker %d may take over"
            log.warning(text, lease_ms, nodes[0])
            server.turn_away()
        elif is_away and not is_cut_off:
            is_away = False
            log.warning("clients are served again: nobody has taken over")
            server.welcome()
