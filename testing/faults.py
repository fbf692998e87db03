"""Faults that a test injects into a broker: an error, a closed connection, a delay, no answer, a duplicate request.

The rule: a fault defines which requests it matches and when it fires; the first that fires for a request is applied.
Random choices are seeded, so a run is repeatable. Without faults nothing is added to the broker's request path. Names
of APIs are Kafka's: "Produce", "EndTxn"; None for any. Modelled on the fault proxy of KAFKA-21074.
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
        """Replace the function that serves requests by what `between` makes of it; None: restore it."""
        ...


class Fault:
    """One fault: its effect, the requests that it matches, and at which of these it fires, by default at each.

    calls: how many requests matched; fired: how many of these it was applied to. once(), where() and the like return
    the fault itself.
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
        """Fire at each matching request with this probability (0 to 1). The seed decides. If it never fires by chance,
        the test does not fail.
        """
        self._needs = 0
        return self._when(lambda call: self._chance.random() < probability)

    def where(self, matches: Callable[[Any], bool]) -> "Fault":
        """Fire only at requests for which matches(request) is true. The request is decoded to a class of
        fencepost.protocol.
        """
        self._where = matches
        return self

    def _when(self, strikes: Callable[[int], bool]) -> "Fault":
        """Set at which calls the fault fires. strikes: gets the number of the matching request, from 1."""
        self._strikes = strikes
        return self

    @property
    def unfired(self) -> bool:
        """Return whether the fault fired less often than requested; with a probability, whether no request matched."""
        return self.fired < self._needs if self._needs else not self.calls

    def takes(self, header: RequestHeader, request: Callable[[], Any]) -> "effects.Effect | None":
        """Count a request if it matches this fault. Returns the effect to apply to it; None if it does not match or
        the fault does not fire now. request: returns the decoded request.
        """
        if self._api is not None and header.api_key != self._api.key:
            return None
        if self._api is None and header.api_key == API_VERSIONS:
            return None  # a fault for any API would keep clients from connecting
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
    """The faults of one broker. They stay when it is restarted. error(), delay() and the like return the new fault."""

    def __init__(self, broker: Faulty) -> None:
        self._broker = broker
        self._faults: list[Fault] = []
        self._chance = random.Random(0)
        self._lock = threading.Lock()
        self._intercepting = False

    def seed(self, number: int) -> "Faults":
        """Seed the random choices of with_probability()."""
        self._chance.seed(number)
        return self

    def error(
        self, api: str | None, code: str | int, *, when: When = "before_write", client_id: str | None = None
    ) -> Fault:
        """Answer with this error: without processing the request, or (when="after_write") after it. api: the request's
        name, None for any. client_id: of the clients that are affected, None for all.
        """
        error = error_named(code)
        return self._add(f"error({api!r}, {error.name})", effects.error(error, _is_after_write(when)), api, client_id)

    def disconnect(self, api: str | None = None, *, when: When = "before_write", client_id: str | None = None) -> Fault:
        """Close the connection without an answer: without processing the request, or (when="after_write") after what
        it wrote is durable.
        """
        return self._add(f"disconnect({api!r}, {when})", effects.disconnect(_is_after_write(when)), api, client_id)

    def delay(
        self, api: str | None, seconds: float, *, when: When = "before_write", client_id: str | None = None
    ) -> Fault:
        """Process the request, and later ones of its connection, after a delay; or (when="after_write") process it now
        and send the answer after the delay.
        """
        return self._add(f"delay({api!r}, {seconds})", effects.delay(seconds, _is_after_write(when)), api, client_id)

    def blackhole(self, api: str | None = None, *, when: When = "before_write", client_id: str | None = None) -> Fault:
        """Never answer the request, nor later ones of its connection, which stays open. With when="after_write" the
        request is processed.
        """
        return self._add(
            f"blackhole({api!r}, client_id={client_id!r})", effects.blackhole(_is_after_write(when)), api, client_id
        )

    def duplicate(self, api: str | None, *, client_id: str | None = None) -> Fault:
        """Process the request twice, as if it was received twice. The first answer is sent."""
        return self._add(f"duplicate({api!r})", effects.duplicate, api, client_id)

    def remove(self, fault: Fault) -> None:
        """Remove a fault. Requests that it delayed are still processed."""
        with self._lock:
            self._faults = [one for one in self._faults if one is not fault]
        self._start_or_stop_intercepting()

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults = []
        self._start_or_stop_intercepting()

    @property
    def all(self) -> list[Fault]:
        """Return all faults, in the order of their creation."""
        return list(self._faults)

    @property
    def unfired(self) -> list[Fault]:
        """Return the faults that did not fire as often as requested."""
        return [fault for fault in self._faults if fault.unfired]

    def verify(self) -> None:
        """Raise AssertionError if a fault did not fire as often as requested: then the test did not test what it
        should.
        """
        unfired = self.unfired
        assert not unfired, "faults that did not happen: " + ", ".join(map(repr, unfired))

    def _add(self, text: str, effect: effects.Effect, api: str | None, client_id: str | None) -> Fault:
        """Create a fault and activate it. text: its description for messages."""
        fault = Fault(text, effect, None if api is None else api_named(api), client_id, self._chance)
        with self._lock:
            self._faults = [*self._faults, fault]
        self._start_or_stop_intercepting()
        return fault

    def _start_or_stop_intercepting(self) -> None:
        """Intercept the broker's requests as long as there are faults, and only then."""
        wanted = bool(self._faults)
        if wanted != self._intercepting:
            self._intercepting = wanted
            self._broker.intercept(self._between if wanted else None)

    def _between(self, serve: Serve) -> Serve:
        """Return a function that serves requests with `serve`, but applies the first matching fault."""

        def faulty(connection: Connection, frame: Readable) -> None:
            """Serve the request, or apply the effect of the fault that fires at it."""
            effect, request = self._effect_on(frame)
            if effect is None:
                serve(connection, frame)
            else:
                assert request is not None
                effect(serve, connection, request)

        return faulty

    def _effect_on(self, frame: Readable) -> tuple["effects.Effect | None", "effects.ReceivedRequest | None"]:
        """Return the effect of the first fault that fires at this request, and the request; (None, None) if
        none does.
        """
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


def _is_after_write(when: When) -> bool:
    """Return whether a fault happens after the request is processed. Raises ValueError unless `when` is "before_write"
    or "after_write".
    """
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
