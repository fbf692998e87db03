"""What stands at a URL: files, web servers, and what does not end."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from fencepost.effects.fetching import CannotFetch, fetch, scheme_of


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


def test_a_page_and_a_file_are_read(server: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert fetch(f"{server}/page", 5, 100) == b"page"
    (tmp_path / "a b").write_bytes(b"x" * 100)
    assert fetch((tmp_path / "a b").as_uri(), 5, 100) == b"x" * 100


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/missing", "Not Found"), ("/elsewhere", "not allowed"), ("/silent", "timed out"), ("/endless", "0.2 s")],
)
def test_what_cannot_be_had_is_refused_with_a_reason(server: str, path: str, reason: str) -> None:
    with pytest.raises(CannotFetch, match=reason):
        fetch(server + path, 0.2, 10**9)


def test_more_bytes_than_are_wanted_are_not_read(server: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "large").write_bytes(b"x" * 101)
    for url in (f"{server}/endless", (tmp_path / "large").as_uri()):
        with pytest.raises(CannotFetch, match="more than 100 bytes"):
            fetch(url, 5, 100)


@pytest.mark.parametrize("url", ["", "x", "ftp://h/x", "file:", "file://", "http://", "data:,x", "/etc/passwd"])
def test_other_urls_are_none(url: str) -> None:
    with pytest.raises(ValueError, match="is no URL"):
        scheme_of(url)
    with pytest.raises(CannotFetch):
        fetch(url, 1, 100)


def test_nobody_listens_and_no_file_is_there() -> None:
    for url in ("http://127.0.0.1:1/x", "file:///none/such"):
        with pytest.raises(CannotFetch):
            fetch(url, 1, 100)
