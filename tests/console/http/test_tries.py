"""How many wrong tokens each address may try, and what of it is logged, without any socket."""

import pytest
from fencepost.console.http.problems import Problem
from fencepost.console.http.tries import LINE_EVERY_MS, MAX_ADDRESSES, TRIES, TRIES_IN_MS, Tries


def wrong(tries: Tries, address: str, times: int, now_ms: int = 0) -> None:
    for _ in range(times):
        tries.check(address, now_ms)
        tries.add(address, now_ms)


def is_over(tries: Tries, address: str, now_ms: int = 0) -> bool:
    try:
        tries.check(address, now_ms)
    except Problem as problem:
        return problem.error_code == 42901
    return False


def test_an_address_with_many_wrong_tokens_is_blocked_for_a_minute() -> None:
    tries = Tries(lambda line: None)
    wrong(tries, "10.0.0.1", TRIES - 1)
    assert not is_over(tries, "10.0.0.1")
    wrong(tries, "10.0.0.1", 1, 5)
    assert is_over(tries, "10.0.0.1", TRIES_IN_MS - 1)
    assert not is_over(tries, "10.0.0.2", 5)
    assert not is_over(tries, "10.0.0.1", TRIES_IN_MS)
    wrong(tries, "10.0.0.1", TRIES - 1, TRIES_IN_MS)
    assert is_over(tries, "10.0.0.1", TRIES_IN_MS)


@pytest.mark.parametrize(
    ("first", "second", "are_one"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("", "", True),
        ("no address", "10.0.0.1", False),
    ],
)
def test_an_ipv6_64_network_and_an_ipv4_address_in_ipv6_count_as_one_address(
    first: str, second: str, are_one: bool
) -> None:
    tries = Tries(lambda line: None)
    wrong(tries, first, TRIES)
    assert is_over(tries, second) is are_one


def test_above_max_addresses_the_address_longest_without_a_wrong_token_is_forgotten() -> None:
    tries = Tries(lambda line: None)
    wrong(tries, "10.0.0.1", TRIES)
    for number in range(MAX_ADDRESSES - 1):
        wrong(tries, f"11.{number >> 16}.{number >> 8 & 255}.{number & 255}", 1)
    assert (is_over(tries, "10.0.0.1"), len(tries)) == (True, MAX_ADDRESSES)
    wrong(tries, "12.0.0.1", 1)
    assert (is_over(tries, "10.0.0.1"), len(tries)) == (False, MAX_ADDRESSES)


def test_an_address_without_a_wrong_token_for_a_minute_is_forgotten() -> None:
    tries = Tries(lambda line: None)
    wrong(tries, "10.0.0.1", TRIES)
    wrong(tries, "10.0.0.2", 1)
    wrong(tries, "12.0.0.1", 1, TRIES_IN_MS - 1)
    assert len(tries) == 3
    wrong(tries, "12.0.0.1", 1, TRIES_IN_MS)
    assert len(tries) == 1


def test_one_log_line_per_period_counts_wrong_tokens_and_names_the_last_address() -> None:
    lines: list[str] = []
    tries = Tries(lines.append)
    wrong(tries, "10.0.0.1", 1)
    assert lines == ["a wrong token from 10.0.0.1"]
    wrong(tries, "10.0.0.1", 5, LINE_EVERY_MS - 1)
    assert len(lines) == 1
    wrong(tries, "10.0.0.2", 1, LINE_EVERY_MS)
    assert lines[1:] == ["6 wrong tokens since the last such line, the latest from 10.0.0.2"]
