"""Settings of a console: it needs a login where other machines can reach it, and a token that is not short."""

import pytest
from fencepost.console.settings import BadAddress, ConsoleSettings


def settings(host: str = "127.0.0.1", **more: object) -> ConsoleSettings:
    return ConsoleSettings(host, 0, "127.0.0.1:9092", "1", **more)  # type: ignore[arg-type]


def test_a_console_token_below_sixteen_characters_is_refused() -> None:
    settings(token="x" * 16).check()
    with pytest.raises(BadAddress, match="shorter than 16 characters"):
        settings(token="x" * 15).check()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "console.example"])
def test_a_console_that_others_can_reach_needs_a_token_or_the_flag_insecure(host: str) -> None:
    with pytest.raises(BadAddress, match="reachable from other machines"):
        settings(host).check()
    settings(host, token="x" * 16).check()
    settings(host, insecure=True).check()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_on_loopback_a_console_may_serve_without_a_token(host: str) -> None:
    settings(host).check()
