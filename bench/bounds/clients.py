"""Bounds of the SDK: its rate and another library's, each in a process of its own, alternately on one broker; and
how long starts take.
"""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from .. import librdkafka, topics
from ..measured import Measured
from ..peers import peers
from ..peers.names import AIOKAFKA, CONFLUENT, SDK
from . import client_loads
from .processes import NOISE, figures_of
from .sizes import Say, Size, in_turns

PARTITIONS = 4
TOPIC = "bench"
STARTS_A_ROUND = 3  # the median of three: the first start may find no compiled modules
PROGRAMS = {SDK: "fencepost", AIOKAFKA: "aiokafka", CONFLUENT: "confluent"}  # as client_loads names the libraries


@dataclass(frozen=True, slots=True)
class Compared:
    """A load of client_loads, run with the SDK and with another library on a broker with durability os.

    units: how many records of `record_bytes`, or transactions of one record each. filled: how many records the topic
    has before.
    """

    work: str
    library: str
    units: int
    record_bytes: int = 100
    unit: str = "record"
    filled: int = 0

    def measure(self, name: str, size: Size, say: Say) -> Iterator[Measured]:
        """Measure both libraries alternately, on one broker. Yields a result for each."""
        libraries = (SDK, self.library)
        with peers.fencepost("os") as broker:
            for topic in (TOPIC, f"{TOPIC}-copy"):
                topics.create(broker.host, broker.port, topic, PARTITIONS)
            if self.filled:
                there = librdkafka.ProduceLoad(TOPIC, size.count(self.filled), self.record_bytes)
                librdkafka.produce(broker.bootstrap, there, lambda done: None)
            load = client_loads.Load(broker.bootstrap, TOPIC, size.count(self.units), self.record_bytes)
            found = in_turns(size.rounds, *(partial(rate, self.work, PROGRAMS[each], load) for each in libraries))
        for library, rates in zip(libraries, found, strict=True):
            yield Measured(name, self.unit, library, {"rate": tuple(rates)})


def rate(work: str, library: str, load: client_loads.Load) -> float:
    """Run one load in a process. Returns its units per second. Raises: RuntimeError with the process's last output."""
    words = work, library, load.bootstrap, load.topic, str(load.records), str(load.size)
    return figures_of(client_loads, *words)["rate"]


@dataclass(frozen=True, slots=True)
class Start:
    """How long a user waits for something to start, in a new process. timed: the Python code that is timed; before:
    code that runs before it.
    """

    timed: str
    before: str = ""

    def measure(self, name: str, size: Size, say: Say) -> Iterator[Measured]:
        """Start several times in each round. Yields one result with the middle duration in ms of each round."""
        program = f"import time\n{self.before}\nbegan = time.perf_counter()\n{self.timed}\n"
        program += "print(time.perf_counter() - began)\nif 'broker' in globals(): broker.stop()"
        rounds = []
        for _ in range(size.rounds):
            taken = sorted(_number([sys.executable, "-c", program], name, 60) for _ in range(STARTS_A_ROUND))
            rounds.append(1e3 * taken[STARTS_A_ROUND // 2])
        yield Measured(name, "start", SDK, {"took_ms": tuple(rounds)})


def _number(command: list[str], what: str, patience_s: float) -> float:
    """Run a program that prints one number and return it. what: names it in errors. Raises: RuntimeError with its last
    output.
    """
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, env=peers.environment())
    if done.returncode:
        raise RuntimeError(f"{what}: " + " / ".join(done.stderr.splitlines()[-NOISE:]))
    return float(done.stdout)
