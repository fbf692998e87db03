"""The address that clients are told to connect to."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net.advertised import advertised_address

TWO = ("127.0.0.1:1", "0.0.0.0:2")
NAMED = ("SASL_PLAINTEXT://0.0.0.0:2", "PLAINTEXT://127.0.0.1:0")


@pytest.mark.parametrize(
    ("listeners", "reported", "came_by", "reached", "expected"),
    [
        (("127.0.0.1:9092",), (), 0, ("127.0.0.1", 9092), ("127.0.0.1", 9092)),
        (("broker.example:0",), (), 0, ("10.0.0.7", 40001), ("broker.example", 40001)),
        (("localhost:0",), (), 0, ("::1", 40001), ("localhost", 40001)),
        (("0.0.0.0:9092",), (), 0, ("10.0.0.7", 9092), ("10.0.0.7", 9092)),
        (("[::]:9092",), (), 0, ("fd00::7", 9092), ("fd00::7", 9092)),
        (("[::]:9092",), (), 0, ("::ffff:10.0.0.7", 9092), ("10.0.0.7", 9092)),
        ((":9092",), (), 0, ("10.0.0.7", 9092), ("10.0.0.7", 9092)),
        (("0.0.0.0:9092",), ("kafka.example:19092",), 0, ("10.0.0.7", 9092), ("kafka.example", 19092)),
        (("0.0.0.0:0",), ("kafka.example:0",), 0, ("10.0.0.7", 40001), ("kafka.example", 40001)),
        (TWO, (), 1, ("10.0.0.7", 2), ("10.0.0.7", 2)),
        (TWO, ("a:11", "b:12"), 0, ("127.0.0.1", 1), ("a", 11)),
        (TWO, ("a:11", "b:12"), 1, ("10.0.0.7", 2), ("b", 12)),
        (TWO, ("a:11",), 1, ("10.0.0.7", 2), ("a", 11)),
        (("127.0.0.1:0", "0.0.0.0:0"), ("a:11", "b:12"), 1, ("127.0.0.1", 40001), ("b", 12)),
        (NAMED, (), 1, ("127.0.0.1", 40001), ("127.0.0.1", 40001)),
        (NAMED, ("PLAINTEXT://a:11",), 1, ("127.0.0.1", 40001), ("a", 11)),
        (NAMED, ("PLAINTEXT://a:11",), 0, ("10.0.0.7", 2), ("10.0.0.7", 2)),
        (NAMED, ("PLAINTEXT://a:11", "SASL_PLAINTEXT://:12"), 0, ("10.0.0.7", 2), ("10.0.0.7", 12)),
    ],
)
def test_the_advertised_address_is_the_configured_or_the_one_the_client_connected_to(
    listeners: tuple[str, ...],
    reported: tuple[str, ...],
    came_by: int,
    reached: tuple[str, int],
    expected: tuple[str, int],
) -> None:
    settings = BrokerSettings(listeners=listeners, advertised_listeners=reported)
    assert advertised_address(settings.served_listeners[came_by], reached) == expected
