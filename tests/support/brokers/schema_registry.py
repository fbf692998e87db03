"""The HTTP API of a schema registry, as far as confluent-kafka's serializers use it: subjects, ids, schemas.

In a thread of its own: the clients under test block the event loop while they ask. Source: the API reference of
Confluent's Schema Registry.
"""

import itertools
import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class SchemaRegistry:
    """asked: (method, path) of each request. is_down: answer 500 to all requests."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[tuple[str, str]] = []
        self.is_down = False
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self._ids = itertools.count(1)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        path = unquote(urlsplit(path).path)
        self.asked.append((method, path))
        if self.is_down:
            return 500, {"error_code": 50001, "message": "the registry is down"}
        if method == "POST" and (found := re.fullmatch(r"/subjects/([^/]+)/versions", path)):
            number = self._register(found[1], body)
            return 200, {"id": number, "guid": _guid(number)}
        if method == "POST" and (found := re.fullmatch(r"/subjects/([^/]+)", path)):
            for version, number in enumerate(self.subjects.get(found[1], []), start=1):
                if self.schemas[number]["schema"] == body["schema"]:
                    return 200, {"subject": found[1], "id": number, "version": version} | self.schemas[number]
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if method == "GET" and (found := re.fullmatch(r"/schemas/ids/(\d+)", path)) and int(found[1]) in self.schemas:
            return 200, self.schemas[int(found[1])]
        if method == "GET" and (found := re.fullmatch(r"/schemas/guids/(.+)", path)):
            return 200, next(schema for number, schema in self.schemas.items() if _guid(number) == found[1])
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        schema = {"schema": body["schema"], "schemaType": body.get("schemaType", "AVRO")}
        number = next((one for one, known in self.schemas.items() if known == schema), None) or next(self._ids)
        self.schemas[number] = schema
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number


def _guid(number: int) -> str:
    return str(uuid.UUID(int=number))


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = registry.answer(self.command, self.path, json.loads(body) if body else {})
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry = SchemaRegistry(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
