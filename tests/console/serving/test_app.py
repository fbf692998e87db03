"""The application on a real socket with a real broker: login, headers, static files, limits of requests."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from console_client import TOKEN, ConsoleClient, console_of
from fencepost.console.http.guard import COOKIE
from fencepost.console.http.tries import TRIES
from fencepost.console.serving import app, connections
from fencepost.console.serving.server import Console
from fencepost.console.settings import BadAddress, ConsoleSettings
from fencepost.effects.clock import SystemClock
from served_broker import ServedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker(group_initial_rebalance_delay_ms=0) as served:
        yield served


@pytest_asyncio.fixture
async def console(broker: ServedBroker) -> AsyncIterator[ConsoleClient]:
    async with console_of(f"127.0.0.1:{broker.port}") as client:
        yield client


@pytest_asyncio.fixture
async def closed(broker: ServedBroker) -> AsyncIterator[ConsoleClient]:
    """A client of a console that asks for a token."""
    async with console_of(f"127.0.0.1:{broker.port}", token=TOKEN) as client:
        yield client


SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest.mark.parametrize("path", ["/", "/v1/session", "/healthz", "/nowhere", "/v1/snapshot", "/static/../app.py"])
async def test_every_response_has_the_security_headers(console: ConsoleClient, path: str) -> None:
    for headers in ({}, {"Host": "evil.example"}):
        _, found, _ = await console.ask("GET", path, headers=headers)
        assert {name: found[name] for name in SAFE} == SAFE
        policy = found["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert not [name for name in found if name.startswith("Access-Control")]


async def test_a_query_string_longer_than_max_query_chars_gets_422(console: ConsoleClient) -> None:
    status, _, body = await console.ask("GET", "/healthz?" + "x" * (app.MAX_QUERY_CHARS + 1))
    assert (status, body["message"]) == (422, f"the query is longer than {app.MAX_QUERY_CHARS} characters")


async def test_the_page_is_served_and_paths_outside_its_static_files_get_404(console: ConsoleClient) -> None:
    status, headers, body = await console.ask("GET", "/")
    assert (status, headers["Content-Type"], body[:15]) == (200, "text/html; charset=utf-8", b"<!doctype html>")
    status, _, _ = await console.ask("GET", "/", headers={"If-None-Match": headers["ETag"]})
    assert status == 304
    for path in ("../app.py", "%2e%2e/app.py", "..%2fapp.py", "/etc/passwd", "nothing.js", "%00"):
        status, _, body = await console.ask("GET", f"/static/{path}")
        assert (status, body["error_code"]) == (404, 40402), path


async def test_a_request_with_another_sites_host_or_origin_gets_403(console: ConsoleClient) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        status, _, body = await console.ask("GET", "/v1/session", headers=headers)
        assert (status, body["error_code"]) == (403, 40302)


async def test_without_a_token_the_session_is_open_and_returns_its_csrf_token(console: ConsoleClient) -> None:
    found = await console.get("/v1/session")
    assert (found["login_required"], found["logged_in"], found["changes_allowed"]) == (False, True, True)
    assert found["csrf_token"]
    assert found["cluster_id"]


async def test_with_a_token_nothing_of_the_cluster_is_shown_before_the_login(closed: ConsoleClient) -> None:
    found = await closed.get("/v1/session")
    assert (found["login_required"], found["logged_in"]) == (True, False)
    assert (found["csrf_token"], found["cluster_id"], found["bootstrap"]) == (None, None, None)
    for path in ("/v1/snapshot", "/v1/events"):
        status, _, body = await closed.ask("GET", path)
        assert (status, body["error_code"]) == (401, 40101)
    assert (await closed.ask("GET", "/"))[0] == 200
    assert (await closed.ask("GET", "/healthz"))[0] == 200


async def test_a_login_sets_an_http_only_cookie_that_is_valid_until_logout(
    closed: ConsoleClient,
) -> None:
    status, headers, body = await closed.ask("POST", "/v1/session", json={"token": TOKEN})
    assert (status, body["logged_in"]) == (200, True)
    cookie = headers["Set-Cookie"]
    assert cookie.startswith(f"{COOKIE}_{closed.console.port}=")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert (await closed.get("/v1/snapshot"))["reachable"]
    status, _, _ = await closed.ask(
        "DELETE", "/v1/session", headers={"X-CSRF-Token": body["csrf_token"], "Content-Type": "application/json"}
    )
    assert status == 204
    assert (await closed.ask("GET", "/v1/snapshot"))[0] == 401


async def test_consoles_on_two_ports_of_a_host_keep_their_logins_apart(
    closed: ConsoleClient, broker: ServedBroker
) -> None:
    async with console_of(f"127.0.0.1:{broker.port}", token=TOKEN) as other:
        other_base, here = other.base, closed.base
        for closed.base in (other_base, here):  # both logins with the cookies of one browser
            await closed.ask("POST", "/v1/session", json={"token": TOKEN})
        for closed.base in (other_base, here):
            assert (await closed.get("/v1/session"))["logged_in"]
        scheme = (await closed.get("/openapi.json"))["components"]["securitySchemes"]["cookie"]
        assert scheme["name"] == f"{COOKIE}_{closed.console.port}"


async def test_a_wrong_token_or_one_in_the_url_gets_401_but_a_bearer_token_works(closed: ConsoleClient) -> None:
    status, _, body = await closed.ask("POST", "/v1/session", json={"token": "no"})
    assert (status, body["error_code"]) == (401, 40101)
    for path in (
        "/v1/snapshot?token=" + TOKEN.replace(" ", "%20"),
        "/v1/snapshot?access_token=" + TOKEN.replace(" ", "%20"),
    ):
        assert (await closed.ask("GET", path))[0] == 401
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert (await closed.ask("GET", "/v1/snapshot", headers=bearer))[0] == 200


async def test_after_too_many_wrong_bearer_tokens_an_address_gets_429(
    closed: ConsoleClient, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, right = ({"Authorization": f"Bearer {token}"} for token in ("guessed", TOKEN))
    for _ in range(TRIES):
        assert (await closed.ask("GET", "/metrics", headers=wrong))[0] == 401
    assert (await closed.ask("GET", "/metrics", headers=right))[0] == 429
    assert (await closed.ask("POST", "/v1/session", json={"token": TOKEN}))[0] == 429
    assert [each.getMessage() for each in caplog.records if each.name.startswith("fencepost.console")] == [
        "a wrong token from 127.0.0.1"
    ]


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 422),
        (b"[]", "application/json", 422),
        (b'{"token": 5}', "application/json", 422),
        (b'{"token": "x", "more": 1}', "application/json", 422),
        (b'{"token": "\\ud800"}', "application/json", 422),
        (b"[" * 60_000, "application/json", 422),
        (b'{"token": "x"}', "text/plain", 415),
        (b" " * 300_000, "application/json", 413),
    ],
)
async def test_a_login_with_a_malformed_request_body_gets_the_matching_4xx_status(
    closed: ConsoleClient, body: bytes, kind: str, status: int
) -> None:
    found, _, answer = await closed.ask("POST", "/v1/session", data=body, headers={"Content-Type": kind})
    assert found == status == answer["error_code"] // 100, answer


@pytest.mark.parametrize(
    "raw", [b"GET /" + 140_000 * b"x" + b" HTTP/1.1\r\n\r\n", b"\x16\x03\1\r\n\r\n", b"<b>\r\n\r\n"]
)
async def test_input_that_is_not_http_gets_400_and_the_answer_does_not_repeat_it(
    console: ConsoleClient, raw: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", console.console.port)
    writer.write(raw)
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert b"nosniff" in answer
    assert answer.endswith(b'{"error_code": 40001, "message": "bad request", "hint": null}')


@pytest.mark.parametrize(
    ("raw", "answer"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nHost: loc", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\n", b"HTTP/1.1 200 "),
        (
            b"POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 9\r\nConnection: close\r\n\r\n{",
            b"HTTP/1.1 400 ",
        ),
    ],
)
async def test_a_connection_with_an_incomplete_request_is_closed_after_a_timeout(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch, raw: bytes, answer: bytes
) -> None:
    for module, name in ((connections, "REQUEST_S"), (connections, "KEPT_S"), (app, "BODY_S")):
        monkeypatch.setattr(module, name, 0.2)
    async with asyncio.timeout(30), console_of(f"127.0.0.1:{broker.port}", token=TOKEN) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.console.port)
        writer.write(raw)
        found = await reader.read()
        writer.close()
        assert found.startswith(answer)
        assert bool(found) == bool(answer)


async def test_a_wrong_http_method_is_answered_with_the_allowed_ones(console: ConsoleClient) -> None:
    status, headers, body = await console.ask("PUT", "/v1/session", json={})
    assert (status, body["error_code"]) == (405, 40501)
    assert "GET" in headers["Allow"]


async def test_readyz_is_200_while_the_broker_answers_and_else_503_with_the_reason() -> None:
    """/healthz stays 200, and the snapshot names the problem."""
    with ServedBroker() as broker:
        async with console_of(f"127.0.0.1:{broker.port}") as client:
            assert await client.get("/readyz") == {"ready": True, "reasons": []}
    async with console_of(f"127.0.0.1:{broker.port}") as client:
        status, _, body = await client.ask("GET", "/readyz")
        assert (status, body["ready"]) == (503, False)
        assert "NETWORK_EXCEPTION" in body["reasons"][0]
        assert await client.get("/healthz") == {"status": "ok"}
        snapshot = await client.get("/v1/snapshot")
        assert not snapshot["reachable"]
        assert snapshot["problem"]["message"]


async def test_a_console_needs_a_token_if_others_can_reach_it_and_none_may_be_short() -> None:
    def settings(host: str, **more: object) -> ConsoleSettings:
        return ConsoleSettings(host=host, port=0, bootstrap="x:1", version="1", **more)  # type: ignore[arg-type]

    for host in ("0.0.0.0", "::", "10.0.0.1"):
        with pytest.raises(BadAddress) as refused:
            settings(host).check()
        assert "--http-token-file" in refused.value.hint
        with pytest.raises(BadAddress):
            Console(settings(host), lambda: None)  # type: ignore[arg-type, return-value]
        settings(host, insecure=True).check()
        settings(host, token=TOKEN).check()
    with pytest.raises(BadAddress):
        settings("127.0.0.1", token="short").check()
    settings("localhost").check()


async def test_starting_the_console_on_a_port_in_use_raises_bad_address(console: ConsoleClient) -> None:
    taken = ConsoleSettings(host="127.0.0.1", port=console.console.port, bootstrap="x:1", version="1")
    with pytest.raises(BadAddress, match="in use"):
        await Console(taken, lambda: None).start()  # type: ignore[arg-type, return-value]


async def test_closing_the_console_returns_although_an_event_stream_is_open(broker: ServedBroker) -> None:
    async with asyncio.timeout(10), console_of(f"127.0.0.1:{broker.port}") as client, client.events() as stream:
        assert (await stream.next())[0] == "snapshot"
        await client.console.close()


async def test_a_compressed_request_body_is_refused_with_422(closed: ConsoleClient) -> None:
    """A megabyte can expand to a gigabyte, and expanding it would block all other requests."""
    body = gzip.compress(json.dumps({"token": TOKEN}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    status, _, answer = await closed.ask("POST", "/v1/session", headers=headers, data=body)
    assert (status, answer["error_code"]) == (422, 42201)


class SetBack(SystemClock):
    """A clock. Once is_later is set, a minute has passed, and the wall clock was set back by an hour."""

    is_later = False

    def now_ms(self) -> int:
        return super().now_ms() - 3_600_000 * self.is_later

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + 61_000 * self.is_later


async def test_setting_the_wall_clock_back_does_not_prolong_a_block_for_wrong_tokens(closed: ConsoleClient) -> None:
    closed.console.parts.clock = clock = SetBack()
    for _ in range(TRIES):
        wrong = {"Authorization": "Bearer wrong"}
        assert (await closed.ask("GET", "/v1/snapshot", headers=wrong))[0] == 401
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert (await closed.ask("GET", "/v1/snapshot", headers=right))[0] == 429
    clock.is_later = True
    assert (await closed.ask("GET", "/v1/snapshot", headers=right))[0] == 200
