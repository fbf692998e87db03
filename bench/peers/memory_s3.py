"""A bucket of S3 in memory, on loopback, that is as slow as a real one: each request waits before it takes effect.

The bucket supports the requests that the broker sends (PUT with If-None-Match, GET with a range, ListObjectsV2,
DeleteObjects). It checks no keys, and can be told to refuse requests or to leave them unanswered. `python -m
fencepost.bench.peers.memory_s3 PUT_MS GET_MS` prints the bucket's endpoint, then serves until its standard input ends.
"""

import re
import sys
import threading
import time
from collections.abc import Collection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET = "bucket"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
PAGE = 1000  # names in one page of a listing
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the error of a request, unless the client has gone: benchmarks kill brokers."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class MemoryS3:
    """A server with one bucket. It serves from its construction until close().

    put_ms, get_ms: how long each request waits before it takes effect; get_ms also for requests that list and delete.
    asked: how many requests of each method came, those without an answer included.
    """

    def __init__(self, put_ms: float = 0, get_ms: float = 0) -> None:
        self.put_ms = put_ms
        self.get_ms = get_ms
        self.content: dict[str, bytes] = {}
        self.asked: dict[str, int] = {}
        self.refuses: Collection[str] = ()  # methods whose requests are answered with 403
        self._answering = threading.Event()
        self._answering.set()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables by which clients find the server."""
        return {**ENVIRONMENT, "AWS_ENDPOINT_URL": self.endpoint}

    def hang(self) -> None:
        """Leave all requests unanswered from now on, until close()."""
        self._answering.clear()

    def close(self) -> None:
        """Stop serving."""
        self._answering.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Carry out a request after its delay. target: path and query. headers: with names in lower case. Returns the
        status and the body of the answer.
        """
        with self._lock:
            self.asked[method] = self.asked.get(method, 0) + 1
        time.sleep((self.put_ms if method == "PUT" else self.get_ms) / 1000)
        self._answering.wait()
        with self._lock:
            if method in self.refuses:
                return 403, _error("AccessDenied")
            name = _name(target)
            if method == "GET" and not name:
                return 200, self._list(parse_qs(urlsplit(target).query))
            return self._answer_for_object(method, name, headers, body)

    def size(self, target: str) -> int:
        """Return the size in bytes of the object that a request is for; 0 if it does not exist."""
        return len(self.content.get(_name(target), b""))

    def _answer_for_object(self, method: str, name: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Carry out a request for one object. Returns the status and the body of the answer."""
        if method == "PUT":
            if "if-none-match" in headers and name in self.content:
                return 412, _error("PreconditionFailed")
            self.content[name] = body
            return 200, b""
        if method == "POST":  # DeleteObjects, which clients send even to delete one object
            keys = _KEY.findall(body)
            for each in keys:
                self.content.pop(unescape(each.decode()), None)
            rows = b"".join(b"<Deleted><Key>%b</Key></Deleted>" % each for each in keys)
            return 200, b"<DeleteResult>%b</DeleteResult>" % rows
        if name not in self.content:
            return 404, _error("NoSuchKey")
        found = _RANGE.fullmatch(headers.get("range", ""))
        if found is None:
            return 200, self.content[name]
        content = self.content[name]
        return 206, content[int(found[1]) : int(found[2]) + 1 if found[2] else len(content)]

    def _list(self, query: dict[str, list[str]]) -> bytes:
        """Return one page of a listing, in the order of names."""
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        names = sorted(name for name in self.content if name.startswith(prefix) and name > after)
        page, is_cut = names[:PAGE], len(names) > PAGE
        rows = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.content[name])}</Size>"
            '<LastModified>2026-11-28T12:00:00.000Z</LastModified><ETag>"1"</ETag></Contents>'
            for name in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if is_cut else ""
        head = f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{token}"
        return f"<ListBucketResult>{head}{rows}</ListBucketResult>".encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        """Return the class that reads requests and writes answers."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer in one segment

            def _serve(self) -> None:
                """Answer one HTTP request: with status, headers and body as an S3 server would."""
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, found = server.answer(self.command, self.path, headers, body)
                start = _RANGE.fullmatch(headers.get("range", ""))
                self.send_response(status)
                if status == 206 and start is not None:
                    first, of = int(start[1]), server.size(self.path)
                    self.send_header("content-range", f"bytes {first}-{first + len(found) - 1}/{of}")
                self.send_header("content-length", str(len(found)))
                self.send_header("last-modified", "Sat, 28 Nov 2026 12:00:00 GMT")
                self.send_header("etag", '"1"')
                self.end_headers()
                self.wfile.write(found)

            do_GET = do_PUT = do_POST = _serve

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler


def _name(target: str) -> str:
    """Return the name of the object that a request is for; "" for the bucket."""
    return unquote(urlsplit(target).path).removeprefix(f"/{BUCKET}").removeprefix("/")


def _error(code: str) -> bytes:
    """Return the body of an answer with an error."""
    return f"<Error><Code>{code}</Code><Message></Message></Error>".encode()


if __name__ == "__main__":
    serving = MemoryS3(float(sys.argv[1]), float(sys.argv[2]))
    print(serving.endpoint, flush=True)
    sys.stdin.read()
    serving.close()
