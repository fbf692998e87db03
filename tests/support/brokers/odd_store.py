"""An HTTP server in place of an S3 bucket, which answers each request as the test says."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CUT = "cut"  # instead of a status: the connection ends in the middle of the answer
SILENT = "silent"  # instead of a status: no answer comes, and the connection stays


def error_body(code: str, message: str = "") -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


class OddStore:
    """`answers`: (status, CUT or SILENT, body), one for each request; after them 404. `asked`: (method, path,
    If-None-Match) of each request. `delay_s`: before each answer.
    """

    def __init__(self) -> None:
        self.answers: list[tuple[object, bytes]] = []
        self.asked: list[tuple[str, str, str | None]] = []
        self.delay_s = 0.0
        self._closing = threading.Event()
        store = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                store.asked.append((self.command, self.path, self.headers.get("if-none-match")))
                status, body = store.answers.pop(0) if store.answers else (404, error_body("NoSuchKey"))
                if status == SILENT:
                    store._closing.wait()
                    self.close_connection = True
                    return
                store._closing.wait(store.delay_s)
                self.send_response(200 if status == CUT else int(str(status)))
                self.send_header("content-length", str(len(body) + (100 if status == CUT else 0)))
                self.send_header("last-modified", "Fri, 27 Nov 2026 18:00:00 GMT")
                self.send_header("etag", '"1"')
                self.end_headers()
                self.wfile.write(body)
                if status == CUT:
                    self.close_connection = True

            do_GET = do_PUT = do_POST = do_DELETE = _answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._server.server_close()
