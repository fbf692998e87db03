"""What strikes machines that share a store, beside what strikes the network: ends, stops, and a store that is bad."""

import asyncio
from dataclasses import replace

from simulation.faults import Fault, Faults
from simulation.machines import Machine, StoredWorld
from simulation.store_links import GOOD, Weather

BAD = Weather(unclear=0.1, lost=0.1, late=0.1, conflicts=0.1, keeps=0.3)
WEATHERS = {
    "bad": BAD,
    "answers are lost": replace(GOOD, lost=0.5),
    "late": replace(GOOD, late=0.5),
    "409": replace(GOOD, conflicts=0.5),
    "403": replace(GOOD, refused=1.0),
    "throttled": replace(GOOD, unclear=0.7),
    "slow": replace(GOOD, latency_s=(0.05, 1.0)),
    "uneven": replace(GOOD, latency_s=(0.0, 0.4)),
    "deletes do nothing": replace(GOOD, keeps=1.0),
}


class StoreFaults(Faults):
    """Strikes until the world is over."""

    world: StoredWorld

    def __init__(self, world: StoredWorld) -> None:
        super().__init__(world)
        kinds: list[tuple[int, Fault]] = [
            (3, self.delays),
            (4, self.cut),
            (4, self.held_requests),
            (2, self.held_answers),
            (1, self.clock_jump),
            (2, self.slow_disk),
            (4, self.killed),
            (5, self.owner_killed),
            (5, self.owner_stopped),
            (2, self.stopped),
            (4, self.handed_over),
            (5, self.owner_cut_off),
            (2, self.cut_off),
            (2, self.store_away),
            (8, self.bad_store),
            (2, self.killed_after_a_stop),
        ]
        self._kinds = [fault for weight, fault in kinds for _ in range(weight)]

    async def heal(self) -> None:
        world = self.world
        for one in world.machines:
            one.link.weather, one.link.is_cut = GOOD, False
            if one.process is not None:
                one.process.go_on()
        world.on_send = lambda transport, keys: None
        world.network.delay_ms = (0.05, 1.0)
        for connection in world.network.connections:
            connection.release()
        await world.start()

    # ---- machines --------------------------------------------------------------------------------------------

    def _any(self) -> Machine:
        return self.rng.choice(self.world.machines)

    def _owner(self) -> Machine:
        return self.world.owner or self._any()

    async def killed(self) -> None:
        self._kill(self._any())

    async def owner_killed(self) -> None:
        self._kill(self._owner())

    def _kill(self, one: Machine) -> None:
        rng = self.rng
        one.kill(power=rng.random() < 0.5, wiped=rng.random() < 0.3)
        self.world.loop.call_later(rng.choice((0.1, 1.0, 8.0)) * rng.random(), one.start_if_down)

    async def handed_over(self) -> None:
        one = self._owner()
        await one.stop()
        self.world.loop.call_later(self.rng.choice((0.1, 4.0)), one.start_if_down)

    async def owner_stopped(self) -> None:
        self._stop(self._owner())

    async def stopped(self) -> None:
        self._stop(self._any())

    def _stop(self, one: Machine) -> None:
        """Stop the process (SIGSTOP), and let it go on later (SIGCONT)."""
        if one.process is not None:
            one.process.stand_still()
            self.world.loop.call_later(self.rng.choice((0.5, 3.0, 12.0)) * self.rng.random(), one.process.go_on)

    async def killed_after_a_stop(self) -> None:
        one = self._owner()
        self._stop(one)
        await asyncio.sleep(self.rng.uniform(0.0, 6.0))
        self._kill(one)

    # ---- the store -------------------------------------------------------------------------------------------

    async def owner_cut_off(self) -> None:
        self._cut_off(self._owner())

    async def cut_off(self) -> None:
        self._cut_off(self._any())

    def _cut_off(self, one: Machine) -> None:
        one.link.is_cut = True
        self.world.loop.call_later(self.rng.choice((1.0, 4.0, 12.0)) * self.rng.random(), self._mend, one)

    def _mend(self, one: Machine) -> None:
        one.link.is_cut = False

    async def store_away(self) -> None:
        for one in self.world.machines:
            one.link.is_cut = True
        await asyncio.sleep(self.rng.uniform(0.1, 4.0))
        for one in self.world.machines:
            one.link.is_cut = False

    async def bad_store(self) -> None:
        """Let the store answer badly for some time: the owner, any one machine, or all."""
        rng = self.rng
        name = rng.choice(list(WEATHERS))
        self.struck[f"store: {name}"] = self.struck.get(f"store: {name}", 0) + 1
        those = rng.choice((self.world.machines, [self._owner()], [self._any()]))
        for one in those:
            one.link.weather = WEATHERS[name]
        self.world.loop.call_later(rng.uniform(0.2, 5.0), self._clear, those)

    def _clear(self, those: list[Machine]) -> None:
        for one in those:
            one.link.weather = GOOD
