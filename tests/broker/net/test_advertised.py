"""What clients are told to connect to."""

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.net.advertised import advertised


@pytest.mark.parametrize(
    ("listeners", "told", "reached", "expected"),
    [
        (("127.0.0.1:9092",), (), ("127.0.0.1", 9092), ("127.0.0.1", 9092)),
        (("broker.example:0",), (), ("10.0.0.7", 40001), ("broker.example", 40001)),
        (("localhost:0",), (), ("::1", 40001), ("localhost", 40001)),
        (("0.0.0.0:9092",), (), ("10.0.0.7", 9092), ("10.0.0.7", 9092)),
        (("[::]:9092",), (), ("fd00::7", 9092), ("fd00::7", 9092)),
        (("[::]:9092",), (), ("::ffff:10.0.0.7", 9092), ("10.0.0.7", 9092)),
        ((":9092",), (), ("10.0.0.7", 9092), ("10.0.0.7", 9092)),
        (("0.0.0.0:9092",), ("kafka.example:19092",), ("10.0.0.7", 9092), ("kafka.example", 19092)),
        (("0.0.0.0:0",), ("kafka.example:0",), ("10.0.0.7", 40001), ("kafka.example", 40001)),
        (("127.0.0.1:1", "0.0.0.0:2"), (), ("10.0.0.7", 2), ("10.0.0.7", 2)),
        (("127.0.0.1:1", "0.0.0.0:2"), ("a:11", "b:12"), ("10.0.0.7", 2), ("b", 12)),
        (("127.0.0.1:1", "0.0.0.0:2"), ("a:11",), ("10.0.0.7", 2), ("a", 11)),
        (("127.0.0.1:0", "[::1]:0"), (), ("127.0.0.1", 40001), ("127.0.0.1", 40001)),
        (("127.0.0.1:0", "[::1]:0"), (), ("::1", 40002), ("::1", 40002)),
        (("127.0.0.1:9", "[::1]:9"), ("a:11", "b:12"), ("::1", 9), ("b", 12)),
        (("127.0.0.1:9", "10.0.0.7:9"), ("a:11", "b:12"), ("::ffff:10.0.0.7", 9), ("b", 12)),
        (("127.0.0.1:0", "0.0.0.0:0"), (), ("10.0.0.7", 40001), ("10.0.0.7", 40001)),
        (("0.0.0.0:0", "127.0.0.1:0"), (), ("127.0.0.1", 40001), ("127.0.0.1", 40001)),
        (("0.0.0.0:0", "[::]:0"), ("a:0", "b:0"), ("fd00::7", 40001), ("b", 40001)),
        (("127.0.0.1:0", "broker.example:0"), (), ("10.0.0.7", 40001), ("broker.example", 40001)),
    ],
)
def test_the_advertised_address_is_what_was_told_or_what_the_client_reached(
    listeners: tuple[str, ...], told: tuple[str, ...], reached: tuple[str, int], expected: tuple[str, int]
) -> None:
    settings = BrokerSettings(listeners=listeners, advertised_listeners=told)
    assert advertised(settings, reached) == expected
