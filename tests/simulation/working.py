"""Lets the clients of a simulation work: first under faults, then without, until all are done."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from simulation.history import Finish, Healed
from simulation.world import STALL_MS, World

FINISH_S = 60.0  # virtual: so soon after the last fault everybody must be done


class Client(Protocol):
    """Something that works against the broker until the world is over."""

    def run(self) -> Coroutine[Any, Any, None]: ...


class Striking(Protocol):
    """Faults that strike until the world is over, and are healed then."""

    def run(self) -> Coroutine[Any, Any, None]: ...


async def work_under(faults: Striking, world: World, clients: list[Client], seconds: float) -> None:
    """Run the clients under the faults for this long, then without until they are done, and give the broker the time to
    end what they left open. Raises what a client raised: that is a bug of the simulation. Clients that are not done
    in time are failures of the world.
    """
    working = [asyncio.create_task(client.run()) for client in clients]
    striking = asyncio.ensure_future(faults.run())
    done, _ = await asyncio.wait([*working, striking], timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
    world.over = True
    async with asyncio.timeout(FINISH_S):
        await striking
    world.history.invoke("scenario", Healed()).ok()
    await _finish(world, working)
    await asyncio.sleep(STALL_MS / 1000)


async def _finish(world: World, clients: list["asyncio.Task[None]"]) -> None:
    names = [f"client {number}, {client.get_coro().__qualname__}" for number, client in enumerate(clients)]
    ends = {client: world.history.invoke("scenario", Finish(name)) for name, client in zip(names, clients, strict=True)}
    for client, op in ends.items():
        client.add_done_callback(lambda _, op=op: op.ok())
    done, late = await asyncio.wait(clients, timeout=FINISH_S)
    for task in done:
        task.result()
    if late:
        world.failures.append(f"{len(late)} clients are stuck: {[repr(task)[:200] for task in late]}")
