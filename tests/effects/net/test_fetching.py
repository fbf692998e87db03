"""Fetching the content of a URL: from files, from web servers, and from servers whose answer does not end."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from fencepost.effects.net.fetching import CannotFetch, fetch, scheme_of


class Pages(BaseHTTPRequestHandler):
    stop = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        try:
            while self.path == "/endless" and not self.stop.is_set():
                self.wfile.write(b"x" * 1000)
                self.stop.wait(0.01)
            if self.path == "/silent":
                self.stop.wait(10)
            self.wfile.write(b"page")
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    Pages.stop.clear()
    with HTTPServer(("127.0.0.1", 0), Pages) as pages:
        thread = threading.Thread(target=pages.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{pages.server_port}"
        Pages.stop.set()
        pages.shutdown()
        thread.join()


def test_fetch_returns_the_content_of_an_http_url_and_of_a_file_url(server: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert fetch(f"{server}/page", 5, 100) == b"page"
    (tmp_path / "a b").write_bytes(b"x" * 100)
    assert fetch((tmp_path / "a b").as_uri(), 5, 100) == b"x" * 100


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/missing", "Not Found"), ("/elsewhere", "not allowed"), ("/silent", "timed out"), ("/endless", "0.2 s")],
)
def test_a_failed_fetch_raises_cannot_fetch_with_its_reason(server: str, path: str, reason: str) -> None:
    with pytest.raises(CannotFetch, match=reason):
        fetch(server + path, 0.2, 10**9)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"a"),
    ],
    ids=["its headers", "the size of a chunk", "its text"],
)
@pytest.mark.parametrize("scheme", ["http", "https"])  # the latter in the middle of a handshake
def test_a_fetch_of_a_slow_server_ends_at_its_timeout(scheme: str, begin: bytes, more: bytes) -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(1000)
                try:
                    accepted.sendall(b"\x16\x03\x03\x10\0" if scheme == "https" else begin)
                    while not over.wait(0.05):
                        accepted.sendall(more)
                except OSError:
                    pass

        thread = threading.Thread(target=drip)
        thread.start()
        lost = threading.Timer(20, over.set)
        lost.start()
        try:
            with pytest.raises(CannotFetch):
                fetch(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/", 0.3, 10**6)
            assert not over.is_set(), "the server gave up, and not the client"
        finally:
            lost.cancel()
            over.set()
            thread.join()


@pytest.mark.parametrize("answer", [b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n"])
def test_a_malformed_http_answer_raises_cannot_fetch(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(1000)
                accepted.sendall(answer)

        thread = threading.Thread(target=send)
        thread.start()
        with pytest.raises(CannotFetch):
            fetch(f"http://127.0.0.1:{server.getsockname()[1]}/", 5, 10**6)
        thread.join()


def test_fetching_more_bytes_than_the_limit_raises_cannot_fetch(server: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "large").write_bytes(b"x" * 101)
    for url in (f"{server}/endless", (tmp_path / "large").as_uri()):
        with pytest.raises(CannotFetch, match="more than 100 bytes"):
            fetch(url, 5, 100)


@pytest.mark.parametrize("url", ["", "x", "ftp://h/x", "file:", "file://", "http://", "data:,x", "/etc/passwd"])
def test_urls_of_other_schemes_or_without_a_host_or_path_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is no URL"):
        scheme_of(url)
    with pytest.raises(CannotFetch):
        fetch(url, 1, 100)


def test_a_fetch_of_an_unreachable_server_or_missing_file_raises_cannot_fetch() -> None:
    for url in ("http://127.0.0.1:1/x", "file:///none/such"):
        with pytest.raises(CannotFetch):
            fetch(url, 1, 100)


def test_fetches_time_out_during_name_resolution_and_share_one_look_up(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved, asked = threading.Event(), []
    really = socket.getaddrinfo

    def slow(host: str, *more: Any, **named: Any) -> Any:
        asked.append(host)
        assert resolved.wait(20)
        return really("127.0.0.1", *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    url = server.replace("127.0.0.1", "keys.example") + "/page"
    try:
        for _ in range(3):
            with pytest.raises(CannotFetch, match="timed out"):
                fetch(url, 0.2, 100)
        assert not resolved.is_set()
        assert asked == ["keys.example"], "a look-up that hangs takes one thread, however often it is tried"
    finally:
        resolved.set()
    for thread in threading.enumerate():
        if thread.name == f"fetch {url}":
            thread.join(20)
    assert fetch(url, 5, 100) == b"page"
