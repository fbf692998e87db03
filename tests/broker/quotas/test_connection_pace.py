"""New connections over a rate: of one address, and of all, through a whole broker in virtual time."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from fencepost.broker.config.options import InvalidOption
from fencepost.broker.config.quota_settings import connections_of_addresses
from fencepost.broker.config.settings import BROKER_OPTIONS, BrokerSettings
from fencepost.broker.metrics import Metrics
from fencepost.broker.quotas import limits
from fencepost.broker.quotas.connection_pace import OF_BROKER, ConnectionPace
from fencepost.broker.quotas.entities import CONNECTION_CREATION_RATE, IP, Quotas, entity_of
from fencepost.broker.quotas.rates import Windows
from fencepost.effects.simulated.clock import SimulatedClock
from fencepost.protocol.messages.cluster import ApiVersionsRequest
from loops import LOOPS
from quota_client import set_quota
from served_broker import ServedBroker
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

HOST = "127.0.0.1"


class Arrival:
    """A connection with what ConnectionPace uses of one."""

    def __init__(self, address: str = "10.0.0.1") -> None:
        self.address = address
        self.transport: object | None = self
        self.is_counted = self.is_muted = False
        self.aborted_ms: int | None = None

    def mute(self) -> None:
        self.is_muted = True

    def unmute(self) -> None:
        self.is_muted = False

    def abort(self) -> None:
        self.aborted_ms = -1


class Place:
    """A ConnectionPace with a clock and timers that wait() moves. `let_in` has each connection that it accepted, and
    when.
    """

    def __init__(self, most: int = 2**31 - 1, **rates: float) -> None:
        self.clock = SimulatedClock(monotonic_ms=0)
        self.timers: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self.let_in: list[tuple[int, Arrival]] = []
        self.metrics = Metrics()
        quotas = Quotas()
        for name, rate in rates.items():
            address = None if name == "everybody" else name.removeprefix("a").replace("_", ".")
            quotas.put(entity_of({IP: address}), CONNECTION_CREATION_RATE, rate)
        self.pace: ConnectionPace[Arrival] = ConnectionPace(
            quotas, lambda: Windows(11, 1000), lambda: most, self.clock, self._later, self.metrics, self._let
        )

    def _later(self, delay_s: float, callback: Callable[..., object], *given: Any) -> None:
        self.timers.append((self.clock.monotonic_ms() + delay_s * 1000, len(self.timers), callback, given))

    def _let(self, arrival: Arrival) -> None:
        self.let_in.append((self.clock.monotonic_ms(), arrival))

    def wait(self, ms: int) -> None:
        until = self.clock.monotonic_ms() + ms
        while due := [timer for timer in self.timers if timer[0] <= until]:
            timer = min(due)
            self.timers.remove(timer)
            self.clock.advance(max(0, round(timer[0]) - self.clock.monotonic_ms()))
            timer[2](*timer[3])
        self.clock.advance(until - self.clock.monotonic_ms())


def test_without_a_connection_rate_all_connections_are_accepted_without_any_state() -> None:
    place = Place()
    for number in range(1000):
        place.pace.arrived(Arrival(f"10.0.{number // 250}.{number % 250}"))
    assert (len(place.let_in), len(place.pace), place.timers) == (1000, 0, [])


def test_connections_over_the_brokers_rate_wait_in_order_and_are_all_accepted() -> None:
    """Ten seconds' worth of connections are accepted at once."""
    place = Place(most=10)
    arrivals = [Arrival() for _ in range(300)]
    for arrival in arrivals:
        place.pace.arrived(arrival)
    assert len(place.let_in) == 100, "ten seconds' worth"
    assert all(arrival.is_muted for arrival in arrivals[100:])
    place.wait(60_000)
    assert [arrival for _, arrival in place.let_in] == arrivals
    assert not any(arrival.is_muted for arrival in arrivals)
    assert 15_000 < place.let_in[-1][0] < 40_000, "200 wait; at ten a second that takes 20 s"
    assert place.metrics.throttles[OF_BROKER] > 0


def test_a_waiting_client_that_disconnects_does_not_delay_those_behind_it() -> None:
    place = Place(most=1)
    arrivals = [Arrival() for _ in range(40)]
    for arrival in arrivals:
        place.pace.arrived(arrival)
    for arrival in arrivals[10:39]:
        arrival.transport = None
    place.wait(5_000)
    assert [arrival for _, arrival in place.let_in] == [*arrivals[:10], arrivals[39]]


def test_connections_over_the_rate_of_their_address_are_closed_after_a_wait() -> None:
    place = Place(a10_0_0_1=2.0)
    arrivals = [Arrival() for _ in range(60)]
    for arrival in arrivals:
        place.pace.arrived(arrival)
    other = Arrival("10.0.0.2")
    place.pace.arrived(other)
    assert [arrival for _, arrival in place.let_in] == [*arrivals[:20], other]
    assert all(arrival.is_muted and arrival.aborted_ms is None for arrival in arrivals[20:])
    place.wait(1_000)
    assert all(arrival.aborted_ms for arrival in arrivals[20:])
    assert (place.metrics.refused_connections, place.metrics.throttles) == (40, {CONNECTION_CREATION_RATE: 40})
    place.wait(9_500)
    place.pace.arrived(again := Arrival())
    assert place.let_in[-1][1] is again, "those that were refused are not held against it"


def test_a_slow_client_is_accepted_while_another_address_floods_the_broker() -> None:
    place = Place(everybody=1.0)
    for second in range(60):
        for _ in range(20):
            place.pace.arrived(Arrival("10.0.0.66"))
        if second % 5 == 0:
            place.pace.arrived(honest := Arrival("10.0.0.7"))
            assert place.let_in[-1][1] is honest
        place.wait(1_000)
    accepted_of_the_flood = len(place.let_in) - 12
    assert 55 < accepted_of_the_flood < 75, "one a second, and a burst of ten at the beginning"


def test_with_tls_the_address_rate_is_checked_once_before_the_handshake() -> None:
    place = Place(a10_0_0_1=1.0)
    assert [place.pace.is_too_fast("10.0.0.1") for _ in range(12)] == [False] * 10 + [True] * 2
    assert not place.pace.is_too_fast("10.0.0.2")
    arrival = Arrival()
    arrival.is_counted = True
    place.pace.arrived(arrival)
    assert [each for _, each in place.let_in] == [arrival]
    assert (place.metrics.refused_connections, place.timers) == (2, [])


@pytest.mark.slow
def test_of_a_hundred_thousand_addresses_1000_rates_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_MEASURED", 1_000)
    place = Place(everybody=1.0)
    for number in range(100_000):
        place.pace.arrived(Arrival(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"))
    assert len(place.pace) == 1_000


# ---- with a whole broker -------------------------------------------------------------------------------------


def test_a_connection_above_the_rate_of_its_address_is_closed_without_an_answer() -> None:
    with SimulatedBroker() as broker:
        set_quota(broker, f"ip={HOST}", connection_creation_rate=1)
        clients = [SimulatedClient(broker) for _ in range(14)]
        for client in clients:
            client.send(ApiVersionsRequest())
        answered = [client for client in clients if not client.quiet(0.01) or client.line.received]
        assert len(answered) == 10
        assert all(client.closed() for client in clients if client not in answered)
        assert broker.ask(ApiVersionsRequest()).error_code == 0, "who is connected stays so"
        broker.wait(12)
        assert SimulatedClient(broker).ask(ApiVersionsRequest()).error_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_bytes_of_a_connection_that_waits_to_be_accepted_stay_in_its_socket(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop reads on though reading was paused in connection_made."""
    monkeypatch.setattr("served_broker.new_loop", LOOPS[loop])
    frames = (b"\0\0\x20\0" + b"\0\x12\0\0" + b"x" * (0x2000 - 4)) * 100
    with ServedBroker(max_connection_creation_rate=1) as served:
        clients = [served.connect(timeout_s=0.5) for _ in range(20)]
        sent = 0
        with contextlib.suppress(TimeoutError):  # when the buffers of both sockets are full
            while sent < 100:
                clients[-1].socket.sendall(frames)
                sent += 1
        assert sent < 100
        held = served.inside(lambda broker: [sum(map(len, one._backlog)) for one in broker.server.connections])
        assert max(held) < 1 << 20
        served.close_clients()


def test_connections_delayed_by_the_brokers_rate_are_served() -> None:
    with SimulatedBroker(BrokerSettings(max_connection_creation_rate=1)) as broker:
        clients = [SimulatedClient(broker) for _ in range(13)]
        for client in clients:
            client.send(ApiVersionsRequest())
        for client in clients:
            assert client.receive().error_code == 0
        assert broker.broker.metrics.throttles[OF_BROKER] >= 2
        assert broker.broker.metrics.refused_connections == 0


def test_max_connections_per_ip_overrides_set_the_limit_of_single_addresses() -> None:
    settings = BrokerSettings(max_connections_per_ip=10, max_connections_per_ip_overrides=f"{HOST}:2,10.0.0.1:500")
    with SimulatedBroker(settings) as broker:
        clients = [SimulatedClient(broker) for _ in range(3)]
        assert [client.closed(0.1) for client in clients] == [False, False, True]


def test_malformed_max_connections_per_ip_overrides_are_refused() -> None:
    assert connections_of_addresses("10.0.0.1:5, [::1]:7,fe80::1:9") == {"10.0.0.1": 5, "::1": 7, "fe80::1": 9}
    for wrong in ("localhost:5", "10.0.0.1", "10.0.0.1:x", "10.0.0.1:-1", "10.0.0.1:99999999999"):
        with pytest.raises(InvalidOption, match=r"max\.connections\.per\.ip\.overrides"):
            BROKER_OPTIONS["max.connections.per.ip.overrides"].parse(wrong)
