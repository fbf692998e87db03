"""Runs the load generator in C (closed_loop.c) against a server: it sends ready-made requests, a fixed number in
flight on each connection.
"""

import contextlib
import functools
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...protocol import apis
from .. import topics
from ..peers.peers import MODULES, Peer
from .child import LoadFailed
from .window import Books, Latencies, Sample


@dataclass(frozen=True, slots=True)
class Loop:
    """The arguments of the generator. frames: requests with their length prefixes, for the connections in turn;
    error_at: the position of the error code in an answer, counted after its length prefix (see error_place). depth:
    requests in flight on each connection.
    """

    frames: bytes
    error_at: int
    connections: int
    depth: int = 1


@functools.cache
def program() -> str | None:
    """Return the path of the compiled generator, compiled at the first call. None, with a printed reason, if there is
    no C compiler or it fails.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        print("no C compiler: the load of small requests is a Python program", file=sys.stderr)
        return None
    binary = Path(_folder().name) / "load"
    command = [compiler, "-O2", "-o", str(binary), str(Path(__file__).with_name("closed_loop.c"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(
            f"closed_loop.c was not compiled, a Python program takes its place: {done.stderr[:300]}",
            file=sys.stderr,
        )
        return None
    return str(binary)


@functools.cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    """Return a temporary folder that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="fencepost-bench-", dir=MODULES)


def error_place(key: int, version: int, answer: Callable[[int], Any]) -> int:
    """Return the position of the error code in a response, counted after the length prefix. key: of the API. answer:
    makes a response with the given error code.
    """
    good, bad = (b"".join(apis.encode_response(apis.APIS[key], version, 0, answer(code))) for code in (0, -1))
    return next(place for place in range(len(good)) if good[place] != bad[place]) - 4


def run(peer: Peer, loop: Loop, seconds: float, request_bytes: int = 0) -> Sample:
    """Run the generator for this many seconds, and return what was measured. request_bytes: payload of a request.
    Raises: LoadFailed with the generator's output.
    """
    binary = program()
    assert binary is not None
    numbers = (peer.port, loop.connections, loop.depth, seconds, loop.error_at)
    books = Books(peer)
    with subprocess.Popen(
        [binary, peer.host, *map(str, numbers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(BrokenPipeError):  # why it ended is reported below
                process.stdin.write(loop.frames)
                process.stdin.close()
            if process.stdout.readline():  # "begin"
                books.begin()
            line = process.stdout.readline()
            if not line:
                raise LoadFailed(_why(process))
            books.end()
        finally:
            process.kill()
    report = json.loads(line)
    latencies = Latencies()
    for microseconds, count in report["latencies"]:
        latencies.record_us(microseconds, count)
    requests = report["requests"]
    return books.sample(requests, requests * request_bytes, latencies, report["seconds"], report["cpu_ns"])


def _why(process: "subprocess.Popen[bytes]") -> str:
    """Wait for the generator to end and return why it failed."""
    assert process.stderr is not None
    output = process.stderr.read().decode(errors="replace").strip()
    code = process.wait()
    if output.startswith("error "):
        return f"a request was answered with error {output[6:]} ({topics.error_name(int(output[6:]))})"
    return output or f"the load ended with code {code}"
