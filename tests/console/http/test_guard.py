"""Who may ask the console for what, without any socket."""

import hmac
import itertools

import pytest
from fencepost.console.http.guard import MAX_SESSIONS, SESSION_MS, Guard, host_name, is_loopback
from fencepost.console.http.problems import Problem
from fencepost.console.http.tries import TRIES, TRIES_IN_MS

TOKEN = "a token that nobody guesses"
HERE, ELSEWHERE = "10.0.0.1", "10.0.0.2"
JSON = {"Content-Type": "application/json"}


def guard(token: str | None = TOKEN, *hosts: str, changes_allowed: bool = True) -> Guard:
    secrets = map(str, itertools.count(1000))
    return Guard(token, hosts, lambda: next(secrets), changes_allowed=changes_allowed, changes_hint="--allow-changes")


def refusal(check) -> int:
    with pytest.raises(Problem) as refused:
        check()
    return refused.value.error_code


@pytest.mark.parametrize("host", ["localhost:8082", "127.0.0.1", "[::1]:8082", "10.1.1.7:1", "LOCALHOST", "box:1"])
def test_the_console_accepts_host_headers_with_its_own_names_and_addresses(host: str) -> None:
    guard(TOKEN, "Box").check_host({"Host": host})
    guard(TOKEN, "box").check_host({"Host": host, "Origin": f"http://{host}"})


@pytest.mark.parametrize("host", ["", "evil.example", "localhost.evil.example:8082", "127.0.0.1.evil.example", "[bad"])
def test_a_request_with_a_foreign_host_header_is_refused(host: str) -> None:
    assert refusal(lambda: guard().check_host({"Host": host})) == 40302


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_a_request_of_another_sites_page_is_refused(headers: dict[str, str]) -> None:
    assert refusal(lambda: guard().check_host({"Host": "localhost:8082", **headers})) == 40302


def test_following_a_link_from_another_site_to_the_console_is_allowed() -> None:
    guard().check_host({"Host": "localhost", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"})


def test_a_session_made_with_the_token_is_valid_until_logout_or_session_ms_idle() -> None:
    kept = guard()
    assert refusal(lambda: kept.check_login({}, None, HERE, 0)) == 40101
    assert refusal(lambda: kept.check_login({}, "made up", HERE, 0)) == 40101
    session = kept.log_in(TOKEN, HERE, 0)
    kept.check_login({}, session, HERE, SESSION_MS)
    kept.check_login({}, session, HERE, 2 * SESSION_MS)
    assert refusal(lambda: kept.check_login({}, session, HERE, 3 * SESSION_MS + 1)) == 40101
    other = kept.log_in(TOKEN, HERE, 0)
    kept.log_out(other)
    assert refusal(lambda: kept.check_login({}, other, HERE, 0)) == 40101


@pytest.mark.parametrize("wrong", ["", TOKEN[:-1], TOKEN + "x", "x" * 5000, "\udcff", "Ω"])
def test_a_wrong_token_opens_no_session(wrong: str) -> None:
    assert refusal(lambda: guard().log_in(wrong, HERE, 0)) == 40101
    assert refusal(lambda: guard().check_login({"Authorization": f"Bearer {wrong}"}, None, HERE, 0)) == 40101


def test_tokens_of_any_length_and_csrf_tokens_are_compared_with_compare_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, compared = guard(), list[int]()
    session = kept.log_in(TOKEN, HERE, 0)
    compare = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        compared.append(len(other))
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    for wrong in ("x", "x" * 500):
        assert refusal(lambda given=wrong: kept.log_in(given, HERE, 0)) == 40101
    assert compared == [32, 32], "digests, whose length says nothing of the token's"
    given = {**JSON, "X-CSRF-Token": "wrong"}
    assert refusal(lambda: kept.check_form(given, session, 0, with_csrf=True)) == 40302
    assert compared[2:] == [5]


def test_wrong_tokens_in_logins_and_headers_block_only_their_own_address() -> None:
    """After TRIES wrong ones, the right token is refused too for TRIES_IN_MS; a session that is open goes on."""
    kept = guard()
    session = kept.log_in(TOKEN, HERE, 0)
    wrong, right = {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {TOKEN}"}
    for _ in range(TRIES // 2):
        assert refusal(lambda: kept.log_in("wrong", HERE, 5)) == 40101
        assert refusal(lambda: kept.check_login(wrong, None, HERE, 5)) == 40101
    assert refusal(lambda: kept.log_in(TOKEN, HERE, 6)) == 42901
    assert refusal(lambda: kept.check_login(right, None, HERE, 6)) == 42901
    kept.check_login(wrong, session, HERE, 6)
    assert refusal(lambda: kept.check_login({}, None, HERE, 6)) == 40101
    assert kept.log_in(TOKEN, ELSEWHERE, 6)
    kept.check_login(right, None, ELSEWHERE, 6)
    assert kept.log_in(TOKEN, HERE, 5 + TRIES_IN_MS)


def test_a_console_without_a_token_ignores_tokens_in_headers_and_refuses_a_login() -> None:
    kept = guard(None)
    for _ in range(TRIES + 1):
        kept.check_login({"Authorization": "Bearer x"}, None, HERE, 0)
    assert refusal(lambda: kept.log_in("x", HERE, 0)) == 40101


def test_a_login_at_the_session_limit_ends_the_session_idle_for_longest() -> None:
    kept = guard()
    first, second = kept.log_in(TOKEN, HERE, 0), kept.log_in(TOKEN, HERE, 0)
    kept.check_login({}, first, HERE, 1)
    for _ in range(MAX_SESSIONS - 1):
        kept.log_in(TOKEN, HERE, 2)
    kept.check_login({}, first, HERE, 3)
    assert refusal(lambda: kept.check_login({}, second, HERE, 3)) == 40101


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_change_needs_json_and_the_csrf_token_of_its_own_session(token: str | None) -> None:
    kept = guard(token)
    session = kept.log_in(TOKEN, HERE, 0) if token else None
    csrf = kept.csrf_of(session, 0)
    assert csrf
    kept.check_form({**JSON, "X-CSRF-Token": csrf}, session, 0, with_csrf=True)
    for wrong in ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": csrf + "1"}, {"X-CSRF-Token": "Ω"}):
        assert refusal(lambda given=wrong: kept.check_form({**JSON, **given}, session, 0, with_csrf=True)) == 40302
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"):
        headers = {"Content-Type": kind, "X-CSRF-Token": csrf}
        assert refusal(lambda given=headers: kept.check_form(given, session, 0, with_csrf=True)) == 41501


def test_a_change_with_the_csrf_token_of_another_session_is_refused() -> None:
    kept = guard()
    mine, other = kept.log_in(TOKEN, HERE, 0), kept.log_in(TOKEN, HERE, 0)
    headers = {**JSON, "X-CSRF-Token": kept.csrf_of(other, 0) or ""}
    assert refusal(lambda: kept.check_form(headers, mine, 0, with_csrf=True)) == 40302


def test_a_script_that_sends_the_token_itself_needs_no_csrf_token() -> None:
    headers = {**JSON, "Authorization": f"bearer {TOKEN}"}
    guard().check_login(headers, None, HERE, 0)
    guard().check_form(headers, None, 0, with_csrf=True)
    assert refusal(lambda: guard(None).check_form(headers, None, 0, with_csrf=True)) == 40302


def test_a_read_only_console_refuses_changes_with_a_hint() -> None:
    with pytest.raises(Problem) as refused:
        guard(changes_allowed=False).check_changes()
    assert refused.value.body() == {
        "error_code": 40301,
        "message": "this console is read-only",
        "hint": "--allow-changes",
    }
    guard().check_changes()


def test_loopback_addresses_are_distinguished_from_reachable_ones() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.com", ""]))


@pytest.mark.parametrize(("header", "name"), [("A.b:1", "a.b"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("a", "a")])
def test_host_name_returns_the_name_in_a_host_header_without_its_port(header: str, name: str) -> None:
    assert host_name(header) == name
