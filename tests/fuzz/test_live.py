"""Random requests, many of them malformed, against a whole broker: only their own connections are closed.

`make fuzz` does the same for longer, with other seeds.
"""

import pytest
from fencepost.protocol.messages.cluster import MetadataRequest
from fuzz.live import (
    HONEST,
    Asking,
    attack,
    attack_logins,
    attack_over_sockets,
    check_nothing_is_left,
    no_errors_logged,
    target,
    work_honestly,
    write_and_read,
)
from login_client import add_users, asking, log_in
from peak_memory import peak_bytes
from produce_requests import create
from served_broker import ServedBroker
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

REQUESTS = 800
MAX_BYTES = 16 << 20  # limit of all memory that the broker keeps after them, the simulated disk included


@pytest.mark.slow
@pytest.mark.parametrize("is_guarded", [False, True], ids=["no authorizer", "authorizer"])
@pytest.mark.parametrize("seed", [1, 2])
def test_after_random_requests_the_broker_keeps_no_state_of_them_and_still_serves(is_guarded: bool, seed: int) -> None:
    with no_errors_logged(), target(is_guarded=is_guarded) as broker:
        came = attack(broker, seed, REQUESTS)
        assert came["answers"] > REQUESTS / 10
        check_nothing_is_left(broker)
        work_honestly(broker, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_random_requests_before_a_login_authenticate_nobody(seed: int) -> None:
    with no_errors_logged(), SimulatedBroker(asking()) as broker:
        add_users(broker.broker)
        came_in = attack_logins(broker, seed, REQUESTS)
        metrics = broker.broker.metrics
        assert metrics.failed_logins > REQUESTS / 100
        assert came_in < metrics.failed_logins  # a random password may be the right one
        assert not metrics.failures
        assert not broker.broker.server.connections
        honest = SimulatedClient(broker)
        assert log_in(honest).error_code == 0
        assert honest.ask(MetadataRequest(topics=[]), 9).brokers


@pytest.mark.slow
def test_random_requests_take_less_than_16_mib_of_memory() -> None:
    with target(is_guarded=False) as broker:
        assert peak_bytes(lambda: attack(broker, 3, REQUESTS)) < MAX_BYTES


@pytest.mark.slow
def test_random_requests_over_sockets_leave_another_clients_connection_working() -> None:
    with no_errors_logged(), ServedBroker() as broker, broker.connect() as honest:
        honest.call(create(HONEST, 3))
        honest.call(create("t", 3))
        attack_over_sockets(broker, 4, REQUESTS)
        write_and_read(Asking(honest), 4)
