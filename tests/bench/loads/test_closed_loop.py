"""The load generator in C: it counts the answered requests, and ends at a wrong answer or a lost connection."""

import json
import resource
import struct
import subprocess
import time
from collections import Counter

import pytest
from fencepost.bench.loads import closed_loop as load
from frame_server import FrameServer, Line
from this_machine import has_compiler

pytestmark = pytest.mark.skipif(
    not has_compiler(),
    reason="NO C COMPILER HERE: closed_loop.c, THE LOAD OF THE BENCHMARKS, IS NOT TESTED",
)

ERROR_AT = 6
MANY = 5_000


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def answer(code: int = 0, more: bytes = b"the rest") -> bytes:
    return frame(b"abcdef" + struct.pack(">h", code) + more)


def answered(line: Line, _: bytes) -> None:
    line.transport.write(answer())


def run(
    server: FrameServer, connections: int = 4, depth: int = 1, frames: bytes = b"", seconds: float = 0.2
) -> "subprocess.CompletedProcess[bytes]":
    program = load.program()
    assert program is not None
    numbers = map(str, (server.port, connections, depth, seconds, ERROR_AT))
    return subprocess.run(
        [program, "127.0.0.1", *numbers], input=frames or frame(b"ask"), capture_output=True, timeout=60
    )


def result_of(done: "subprocess.CompletedProcess[bytes]") -> dict:
    assert done.returncode == 0, done.stderr
    begin, result = done.stdout.splitlines()
    assert begin == b"begin"
    return json.loads(result)


def refused(done: "subprocess.CompletedProcess[bytes]") -> str:
    assert done.returncode == 2
    assert done.stdout in (b"begin\n", b"")
    (line,) = done.stderr.decode().splitlines()
    return line


@pytest.mark.parametrize(("connections", "depth"), [(1, 1), (4, 5), (64, 3)])
def test_a_closed_loop_counts_every_request_that_the_server_saw(connections, depth):
    with FrameServer(answered) as server:
        result = result_of(run(server, connections, depth))
    assert result["requests"] == len(server.frames) > connections * depth
    assert sum(count for _, count in result["latencies"]) == result["requests"]
    assert server.opened == connections
    assert result["seconds"] > 0
    assert result["cpu_ns"] > 0


def test_a_closed_loop_has_no_more_requests_in_flight_than_configured():
    lines: Counter[Line] = Counter()
    most = 0

    def later(line: Line, _: bytes) -> None:
        nonlocal most
        lines[line] += 1
        most = max(most, lines[line])
        if lines[line] == 3:  # answers only when three requests of the connection wait
            line.transport.write(answer() * 3)
            lines[line] = 0

    with FrameServer(later) as server:
        result = result_of(run(server, connections=5, depth=3))
    assert most == 3
    assert result["requests"] == len(server.frames) > 15  # more than the first 3 requests of each of 5 connections


def test_connections_send_their_frames_in_turn_and_large_frames_completely():
    sent = [bytes([number]) * (300_000 + number) for number in range(3)]

    def slowly(line: Line, _: bytes) -> None:
        line.transport.pause_reading()  # so that the generator's socket is full now and then
        line.transport.write(answer())
        line.transport.resume_reading()

    with FrameServer(slowly) as server:
        result = result_of(run(server, connections=6, depth=4, frames=b"".join(map(frame, sent))))
    assert set(server.frames) == set(sent)
    assert result["requests"] == len(server.frames)


def test_answers_that_arrive_in_pieces_are_reassembled():
    def in_pieces(line: Line, _: bytes) -> None:
        whole = answer()
        line.transport.write(whole[:3])
        server._loop.call_later(0.001, line.transport.write, whole[3:9])
        server._loop.call_later(0.002, line.transport.write, whole[9:])

    with FrameServer(in_pieces) as server:
        result = result_of(run(server, connections=3, depth=1))
    assert result["requests"] == len(server.frames) > 3  # more than the first of each connection


def test_a_closed_loop_reports_latencies_in_microseconds_sorted_by_length():
    def late(line: Line, _: bytes) -> None:
        time.sleep(0.02)
        line.transport.write(answer())

    with FrameServer(late) as server:
        result = result_of(run(server, connections=1, depth=1))
    assert min(value for value, _ in result["latencies"]) >= 20_000 * 0.999  # reported with three significant digits
    assert result["latencies"] == sorted(result["latencies"])


@pytest.mark.parametrize("code", [1, 3, -1, 87])
def test_an_error_code_in_an_answer_ends_a_closed_loop(code):
    def fails_after_ten(line: Line, _: bytes) -> None:
        line.transport.write(answer(0 if len(server.frames) < 10 else code))

    with FrameServer(fails_after_ten) as server:
        assert refused(run(server, connections=2)) == f"error {code}"


@pytest.mark.parametrize("reset", [False, True])
def test_a_lost_connection_ends_a_closed_loop(reset):
    def cuts(line: Line, _: bytes) -> None:
        if len(server.frames) < 10:
            line.transport.write(answer())
        elif reset:
            line.transport.abort()
        else:
            line.transport.close()

    with FrameServer(cuts) as server:
        assert "was lost" in refused(run(server, connections=2))


def test_a_closed_loop_without_a_server_fails_to_connect():
    with FrameServer(answered) as server:
        pass
    assert "could not be made" in refused(run(server))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (answer() * 2, "more answers than requests"),
        (frame(b"short"), "an answer of 5 bytes"),
        (answer(more=b"x" * 2000), "an answer of 2008 bytes"),
        (b"\xff\xff\xff\xff", "an answer of 4294967295 bytes"),
    ],
)
def test_an_invalid_answer_ends_a_closed_loop(given, text):
    with FrameServer(lambda line, _: line.transport.write(given)) as server:
        assert text in refused(run(server, connections=1))


@pytest.mark.parametrize(("frames", "text"), [(b"\0", "no frame"), (frame(b"whole") + b"\0\0\0\5half", "half a frame")])
def test_a_closed_loop_refuses_malformed_frames_before_it_connects(frames, text):
    with FrameServer(answered) as server:
        assert text in refused(run(server, frames=frames))
        assert server.opened == 0


def test_a_closed_loop_sends_requests_over_each_of_thousands_of_connections():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MANY + 500
    if hard != resource.RLIM_INFINITY and hard < allowed:
        pytest.skip(f"{allowed} OPEN FILES ARE NEEDED, {hard} are allowed here: many connections ARE NOT TESTED")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    try:
        with FrameServer(answered) as server:
            result = result_of(run(server, connections=MANY, seconds=0.01))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert server.opened == MANY
    assert result["requests"] == len(server.frames) >= MANY
