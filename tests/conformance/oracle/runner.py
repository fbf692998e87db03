"""Runs a scenario against a broker and collects what it answers.

The rule: a scenario sees its own topics and its own connections only, so that scenarios may share a broker in any
order. Commands are in commands.py.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fencepost.protocol import apis

from .names import Names
from .notation import BadNotation, Command, Scenario, Step
from .rendering import Renderer
from .wire import Connection, NoAnswer

EVENTUALLY_SECONDS = 10.0


@dataclass
class Sent:
    """A request whose answer has not been read yet."""

    correlation_id: int
    show: Callable[[bytes, float], list[str]]  # the answer's frame and how long it took, as lines
    at: float = field(default_factory=time.monotonic)


class Run:
    """One run of a scenario against one broker."""

    def __init__(self, host: str, port: int) -> None:
        self.names = Names()
        self._address = (host, port)
        self._connections: dict[str, Connection] = {}
        self._sent: dict[str, deque[Sent]] = {}
        self._next_correlation = 0
        self.client_id = "oracle"
        self.gathering: str | None = None  # the connection whose requests are held back, to go with the next one

    def learn_broker(self) -> None:
        """Bind $node, $host, $port and $cluster. The address is the one that was connected to, not the one reported."""
        answer = self.ask("MetadataRequest", 8, topics=[])
        broker = answer.brokers[0]
        self.names.bind("$node", "node", broker.node_id)
        self.names.bind("$host", "host", self._address[0])
        self.names.bind("$port", "port", self._address[1])
        self.names.bind("$cluster", "cluster_id", answer.cluster_id)

    # Connections.

    def connection(self, label: str) -> Connection:
        """Return the connection with this label. It is opened if there is none, or the last one is closed."""
        found = self._connections.get(label)
        if found is None or found.is_closed:
            found = self._connections[label] = Connection(*self._address)
            self._sent[label] = deque()
        found.gathers = label == self.gathering
        return found

    def close(self, label: str) -> None:
        self.connection(label).close()

    def close_all(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # Requests.

    def correlation(self) -> int:
        self._next_correlation += 1
        return self._next_correlation

    def post(self, label: str, data: bytes, sent: Sent) -> None:
        """Send a request. receive() will return the lines of its answer."""
        self.connection(label).send(data)
        self._sent[label].append(sent)

    def receive(self, label: str) -> list[str]:
        """Return the lines of the answer to the oldest unanswered request of a connection."""
        connection = self._connections[label]
        if not self._sent[label]:
            raise BadNotation("there is no request left to be answered")
        sent = self._sent[label].popleft()
        try:
            answer = connection.receive()
        except NoAnswer:
            connection.close()
            return ["silence"]
        if answer is None:
            return ["closed"]
        if int.from_bytes(answer[:4], "big", signed=True) != sent.correlation_id:
            return ["an answer to another request"]
        return sent.show(answer, time.monotonic() - sent.at)

    def ask(self, request: str, version: int, **fields: Any) -> Any:
        """Send a request that the runner needs itself, on its own connection. Returns the response."""
        api = next(api for api in apis.APIS.values() if api.request.__name__ == request)
        connection, correlation = self.connection("(runner)"), self.correlation()
        connection.send(encoded(api, version, correlation, api.request(**fields)))
        answer = connection.receive()
        if answer is None:
            raise ConnectionError(f"the broker closed the connection on {request}")
        return decoded(api, version, answer)

    def renderer(self, *, show_records: bool = False, whole: bool = False) -> Renderer:
        return Renderer(self.names, show_records=show_records, whole=whole)


def encoded(api: apis.Api, version: int, correlation_id: int, request: Any, client_id: str = "oracle") -> bytes:
    return b"".join(bytes(piece) for piece in apis.encode_request(api, version, correlation_id, client_id, request))


def decoded(api: apis.Api, version: int, answer: bytes) -> Any:
    return apis.decode_response(api, version, answer)[1]


Perform = Callable[[Run, Command], list[str] | None]


def run(scenario: Scenario, host: str, port: int, perform: Perform) -> list[tuple[Step, list[str] | None]]:
    """Run a scenario. Returns each step with the answer that it got; None for a step without an answer to compare."""
    this = Run(host, port)
    try:
        this.learn_broker()
        return [(step, _step(this, step, perform)) for step in scenario.steps]
    finally:
        this.close_all()


def _step(this: Run, step: Step, perform: Perform) -> list[str] | None:
    """Perform a step and return its answer; with `eventually`, repeat it until the answer matches or time is up."""
    deadline, pause = time.monotonic() + EVENTUALLY_SECONDS, 0.005
    while True:
        this.gathering = step.command.connection if step.command.with_next else None
        try:
            answer = perform(this, step.command)
        except BadNotation as bad:
            raise BadNotation(f"line {step.line + 1}: {step.text}: {bad}") from None
        wanted = step.command.until
        if wanted is None or re.search(wanted, "\n".join(answer or [])):
            return None if step.command.is_quiet else answer
        if time.monotonic() > deadline:
            return answer
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
