"""Faults to inject into a broker: an error, a closed connection, a delay, no answer, a duplicate request.

The rule: a fault defines which requests it matches and when it fires; the first that fires for a request is applied.
Random choices are seeded, so a run is repeatable. Without faults nothing is added to the broker's request path. Names
of APIs are Kafka's: "Produce", "EndTxn"; None for any.
Modelled on the fault proxy of KAFKA-21074.
"""

import random
import threading
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, Literal, Protocol

from ..broker.broker import Broker, Serve
from ..broker.net.connection import Connection
from ..protocol.apis import APIS, Api
from ..protocol.errors import ErrorCode, MalformedFrame
from ..protocol.headers import RequestHeader, read_request_header
from ..protocol.primitives import Readable
from . import fault_effects as effects

When = Literal["before_write", "after_write"]
API_VERSIONS = 18


class Faulty(Protocol):
    """The methods of an embedded broker that faults use."""

    def inside(self, look: Callable[[Broker], Any]) -> Any:
        """Call `look` with the broker, in the broker's thread, and return its result."""
        ...

    def intercept(self, between: Callable[[Serve], Serve] | None) -> None:
        """Put `between` around the function that serves requests; None removes it."""
        ...


class Fault:
    """One fault, and when it fires: by default every time.

    calls: matching requests; fired: those that it was applied to.
    """

    def __init__(self, text: str, effect: effects.Effect, api: Api | None, client_id: str | None, chance: Any) -> None:
        self.calls = 0
        self.fired = 0
        self._text = text
        self._effect = effect
        self._api = api
        self._client_id = client_id
        self._where: Callable[[Any], bool] | None = None
        self._strikes: Callable[[int], bool] = lambda call: True
        self._needs = 1
        self._chance: random.Random = chance

    def __repr__(self) -> str:
        return f"<fault {self._text}: {self.calls} calls, fired {self.fired}>"

    def once(self) -> "Fault":
        """Fire at the first matching request only."""
        return self.times(1)

    def times(self, count: int) -> "Fault":
        """Fire at the first `count` matching requests."""
        self._needs = count
        return self._when(lambda call: call <= count)

    def on_call(self, number: int) -> "Fault":
        """Fire only at the `number`-th matching request, counted from 1."""
        return self._when(lambda call: call == number)

    def every_time(self) -> "Fault":
        """Fire at every matching request until the fault is removed."""
        return self._when(lambda call: True)

    def with_probability(self, probability: float) -> "Fault":
        """Fire at random, by the seed. A test does not fail if it never fires by chance."""
        self._needs = 0
        return self._when(lambda call: self._chance.random() < probability)

    def where(self, matches: Callable[[Any], bool]) -> "Fault":
        """Fire only at requests for which matches(request) is true. request: decoded to fencepost.protocol's class."""
        self._where = matches
        return self

    def _when(self, strikes: Callable[[int], bool]) -> "Fault":
        self._strikes = strikes
        return self

    @property
    def unfired(self) -> bool:
        """Return whether the fault fired less often than requested."""
        return self.fired < self._needs if self._needs else not self.calls

    def takes(self, header: RequestHeader, request: Callable[[], Any]) -> "effects.Effect | None":
        """Count a request if it matches. Returns the effect to apply to it, or None."""
        if self._api is not None and header.api_key != self._api.key:
            return None
        if self._api is None and header.api_key == API_VERSIONS:
            return None  # else no client could connect
        if self._client_id is not None and header.client_id != self._client_id:
            return None
        if self._where is not None and not self._where(request()):
            return None
        self.calls += 1
        if not self._strikes(self.calls):
            return None
        self.fired += 1
        return self._effect


class Faults:
    """The faults of one broker; they are kept over its restarts."""

    def __init__(self, broker: Faulty) -> None:
        self._broker = broker
        self._faults: list[Fault] = []
        self._chance = random.Random(0)
        self._lock = threading.Lock()
        self._intercepting = False

    def seed(self, number: int) -> "Faults":
        """Seed the random choices."""
        self._chance.seed(number)
        return self

    def error(
        self, api: str | None, code: str | int, *, when: When = "before_write", client_id: str | None = None
    ) -> Fault:
        """Answer with an error: without processing the request, or after it."""
        error = error_named(code)
        return self._add(f"error({api!r}, {error.name})", effects.error(error, _after(when)), api, client_id)

    def disconnect(self, api: str | None = None, *, when: When = "before_write", client_id: str | None = None) -> Fault:
        """Close the connection: without processing the request, or after it is durable, instead of the answer."""
        return self._add(f"disconnect({api!r}, {when})", effects.disconnect(_after(when)), api, client_id)

    def delay(
        self, api: str | None, seconds: float, *, when: When = "before_write", client_id: str | None = None
    ) -> Fault:
        """Process the request and later ones of its connection after a delay; or process it now and answer later."""
        return self._add(f"delay({api!r}, {seconds})", effects.delay(seconds, _after(when)), api, client_id)

    def blackhole(self, api: str | None = None, *, when: When = "before_write", client_id: str | None = None) -> Fault:
        """Never answer the request, nor later ones of its connection, which stays open."""
        return self._add(
            f"blackhole({api!r}, client_id={client_id!r})", effects.blackhole(_after(when)), api, client_id
        )

    def duplicate(self, api: str | None, *, client_id: str | None = None) -> Fault:
        """Process the request twice, as if it was received twice. The first answer is sent."""
        return self._add(f"duplicate({api!r})", effects.duplicate, api, client_id)

    def remove(self, fault: Fault) -> None:
        """Remove a fault. Requests that it delayed are still processed."""
        with self._lock:
            self._faults = [one for one in self._faults if one is not fault]
        self._see_to_interception()

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults = []
        self._see_to_interception()

    @property
    def all(self) -> list[Fault]:
        """All faults, in the order of their creation."""
        return list(self._faults)

    @property
    def unfired(self) -> list[Fault]:
        """The faults that did not fire as often as requested."""
        return [fault for fault in self._faults if fault.unfired]

    def verify(self) -> None:
        """Raise AssertionError if a fault did not fire: then the test does not test what it should."""
        unfired = self.unfired
        assert not unfired, "faults that did not happen: " + ", ".join(map(repr, unfired))

    def _add(self, text: str, effect: effects.Effect, api: str | None, client_id: str | None) -> Fault:
        fault = Fault(text, effect, None if api is None else api_named(api), client_id, self._chance)
        with self._lock:
            self._faults = [*self._faults, fault]
        self._see_to_interception()
        return fault

    def _see_to_interception(self) -> None:
        """Intercept requests while there are faults, and only then."""
        wanted = bool(self._faults)
        if wanted != self._intercepting:
            self._intercepting = wanted
            self._broker.intercept(self._between if wanted else None)

    def _between(self, serve: Serve) -> Serve:
        """Return a function that applies matching faults to a request, then serves it."""

        def faulty(connection: Connection, frame: Readable) -> None:
            effect, request = self._effect_on(frame)
            if effect is None:
                serve(connection, frame)
            else:
                assert request is not None
                effect(serve, connection, request)

        return faulty

    def _effect_on(self, frame: Readable) -> tuple["effects.Effect | None", "effects.ReceivedRequest | None"]:
        try:
            header = read_request_header(frame)
            asked = effects.ReceivedRequest(frame, header)
            for fault in self._faults:
                effect = fault.takes(header, asked.decoded)
                if effect is not None:
                    return effect, asked
        except MalformedFrame:
            pass
        return None, None


def _after(when: When) -> bool:
    if when not in ("before_write", "after_write"):
        raise ValueError(f'when must be "before_write" or "after_write", not {when!r}')
    return when == "after_write"


def error_named(code: str | int) -> ErrorCode:
    """Return the error with this name or number in Kafka. Raises ValueError, which names the nearest one."""
    by_name = ErrorCode.__members__
    for name, one in by_name.items():
        if code in (name, int(one)):
            return one
    near = get_close_matches(str(code), list(by_name), n=1)
    raise ValueError(f"there is no Kafka error {code!r}" + (f": did you mean {near[0]}?" if near else ""))


def api_named(name: str) -> Api:
    """Return the API with this name in Kafka, in any case. Raises ValueError, which names the nearest one."""
    by_name = {api.name.lower(): api for api in APIS.values()}
    found = by_name.get(name.lower())
    if found is None:
        near = get_close_matches(name.lower(), list(by_name), n=1)
        hint = f": did you mean {by_name[near[0]].name}?" if near else ""
        raise ValueError(f"there is no API {name!r}{hint}")
    return found
