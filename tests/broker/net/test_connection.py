"""One connection against a transport and a server made of lists."""

import struct
from collections import deque
from types import SimpleNamespace

import pytest
from fencepost.broker.metrics import Metrics
from fencepost.broker.net import connection as module
from fencepost.broker.net.connection import Connection
from fencepost.broker.net.waiting import Parked


class Wire:
    """A transport that keeps what is written."""

    def __init__(self):
        self.written = []
        self.reading = True
        self.closed = self.aborted = False

    def write(self, data):
        self.written.append(bytes(data))

    def writelines(self, buffers):
        self.written.append([bytes(buffer) for buffer in buffers])

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        assert not self.reading
        self.reading = True

    def close(self):
        self.closed = True

    def abort(self):
        self.aborted = True


class Owner:
    """A server that calls a function for each request. What is given to soon() runs only in run_soon()."""

    def __init__(self, serve=None, pool_bytes=10**9):
        self.metrics = Metrics()
        self.store = SimpleNamespace(congested=False, last_unit=0, has_room_for=lambda request_bytes: True)
        self.served, self.touched, self.complaints = [], [], []
        self.lost_connections, self.waits_for_store, self.pool_queue = [], [], []
        self.pool_left = pool_bytes
        self._serve = serve
        self._soon = deque()

    def serve(self, connection, frame):
        self.served.append(bytes(frame))
        if self._serve:
            self._serve(connection, bytes(frame))

    def touch(self, connection):
        self.touched.append(connection)

    def soon(self, work):
        self._soon.append(work)

    def run_soon(self):
        while self._soon:
            self._soon.popleft()()

    def reserve(self, connection, size_bytes):
        if self.pool_left <= 0:
            self.pool_queue.append((connection, size_bytes))
            return False
        self.pool_left -= size_bytes
        return True

    def give_back(self, connection, size_bytes):
        self.pool_left += size_bytes

    def stalled(self, connection):
        self.waits_for_store.append(connection)

    def failed(self, connection, error):
        self.complaints.append(error)
        connection.abort()

    def malformed(self, connection, reason):
        self.complaints.append(reason)

    def lost(self, connection):
        self.lost_connections.append(connection)


def connect(serve=None, max_frame_bytes=1 << 20, **kwargs):
    owner = Owner(serve, **kwargs)
    connection = Connection(owner, max_frame_bytes)
    connection.transport = Wire()
    return connection, owner, connection.transport


def frame(body):
    return struct.pack(">i", len(body)) + body


def echo(connection, body):
    connection.slots.append((0, body))


def test_all_replies_ready_in_one_pass_are_sent_in_one_write():
    connection, owner, wire = connect(echo)
    connection.data_received(frame(b"one") + frame(b"two") + frame(b"three"))
    assert wire.written == []
    assert owner.touched == [connection]
    assert connection.flush(0) is False
    assert wire.written == [b"onetwothree"]


def test_large_replies_are_sent_without_being_copied_together():
    connection, _, wire = connect()
    big = bytes(module.JOIN_BELOW_BYTES)
    connection.reply([b"head", memoryview(big)], 0)
    connection.flush(0)
    assert wire.written == [[b"head", big]]


def test_replies_are_sent_in_request_order_whichever_is_ready_first():
    connection, _, wire = connect()
    parked = Parked()
    slot = connection.park(parked)
    connection.slots.append((0, b"second"))
    assert connection.flush(0) is False
    assert wire.written == []
    slot.fill([b"first"], 0)
    connection.flush(0)
    assert wire.written == [b"firstsecond"]


def test_a_reply_waits_for_its_journal_unit_and_delays_later_replies():
    connection, _, wire = connect()
    connection.slots.append((3, b"a"))
    connection.slots.append((0, b"b"))
    connection.slots.append((7, b"c"))
    assert connection.flush(2) is True
    assert wire.written == []
    assert connection.flush(3) is True
    assert wire.written == [b"ab"]
    assert connection.flush(7) is False
    assert wire.written == [b"ab", b"c"]


def test_a_parked_reply_waits_for_the_journal_unit_at_which_it_was_answered():
    connection, _, wire = connect()
    slot = connection.park(Parked())
    slot.fill([b"x"], 9)
    assert connection.flush(8) is True
    assert connection.flush(9) is False
    assert wire.written == [b"x"]


def test_a_malformed_frame_closes_the_connection_after_earlier_replies_were_sent():
    connection, owner, wire = connect(echo)
    connection.data_received(frame(b"good"))
    connection.data_received(struct.pack(">i", -1) + b"junk")
    assert len(owner.complaints) == 1
    assert not wire.reading
    connection.data_received(frame(b"more"))
    connection.flush(0)
    assert wire.written == [b"good"]
    assert wire.closed


def test_replies_before_a_close_are_not_lost():
    connection, _owner, wire = connect()
    connection.slots.append((5, b"owed"))
    connection.close_after_replies()
    connection.close_after_replies()
    assert connection.flush(4) is True
    assert not wire.closed
    assert connection.flush(5) is False
    assert wire.written == [b"owed"]
    assert wire.closed


def test_a_frame_length_above_the_maximum_is_refused_before_its_bytes_arrive():
    connection, owner, _wire = connect(max_frame_bytes=1000)
    connection.data_received(struct.pack(">i", 1001))
    assert owner.complaints
    assert owner.served == []


def test_requests_are_not_handled_while_the_client_does_not_read_its_replies():
    connection, owner, wire = connect(echo)
    connection.pause_writing()
    assert not wire.reading
    connection.data_received(frame(b"one") + frame(b"two"))
    assert owner.served == []
    connection.resume_writing()
    owner.run_soon()
    assert owner.served == [b"one", b"two"]
    assert wire.reading


def test_received_requests_wait_if_the_client_stops_reading_while_one_is_handled():
    def serve(connection, body):
        connection.slots.append((0, body))
        if body == b"2":
            connection.pause_writing()

    connection, owner, _ = connect(serve)
    connection.data_received(b"".join(frame(str(n).encode()) for n in range(6)))
    assert owner.served == [b"0", b"1", b"2"]
    connection.resume_writing()
    owner.run_soon()
    assert owner.served == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_too_many_unsent_replies_pause_reading_until_they_are_sent(monkeypatch):
    monkeypatch.setattr(module, "WAITING_REPLIES", 10)
    connection, owner, wire = connect(lambda connection, body: connection.slots.append((1, body)))
    connection.data_received(b"".join(frame(b"x") for _ in range(30)))
    assert not wire.reading
    served = len(owner.served)
    connection.data_received(frame(b"y"))
    assert len(owner.served) == served
    connection.flush(1)
    owner.run_soon()
    assert owner.served[-1] == b"y"
    assert wire.reading


def test_too_many_bytes_of_unsent_replies_pause_request_handling():
    big = [bytes(module.WAITING_BYTES)]
    connection, owner, wire = connect(lambda connection, body: connection.reply(list(big), 1))
    connection.data_received(b"".join(frame(b"fetch") for _ in range(5)))
    assert len(owner.served) == 2  # the second reply is the first beyond WAITING_BYTES
    assert not wire.reading
    connection.flush(1)
    owner.run_soon()
    assert len(owner.served) == 4


PRODUCE = b"\x00\x00rest"
OTHER = b"\x00\x01rest"


def test_a_congested_store_delays_produce_and_the_requests_sent_after_it():
    connection, owner, wire = connect(echo)
    owner.store.congested = True
    connection.data_received(frame(OTHER) + frame(PRODUCE) + frame(OTHER))
    assert owner.served == [OTHER]
    assert owner.waits_for_store == [connection]
    assert not wire.reading
    owner.store.congested = False
    connection.relieved()
    owner.run_soon()
    assert owner.served == [OTHER, PRODUCE, OTHER]
    assert wire.reading


@pytest.mark.parametrize("backlog", [b"", frame(OTHER)])
def test_a_large_request_waits_until_a_journal_file_has_room_for_it(backlog):
    """Requests behind it on its connection wait too; a small request does not wait for room."""
    connection, owner, wire = connect(echo)
    large = PRODUCE + bytes(module.RESERVE_FROM_BYTES)
    asked = []
    owner.store.has_room_for = lambda size: asked.append(size)
    connection.data_received(backlog + frame(PRODUCE) + frame(large) + frame(OTHER))
    before = [OTHER] * bool(backlog) + [PRODUCE]
    assert owner.served == before
    assert owner.waits_for_store == [connection]
    assert asked == [len(large)]
    assert not wire.reading
    connection.relieved()
    owner.run_soon()
    assert owner.served == before
    assert owner.waits_for_store == [connection] * 2
    owner.store.has_room_for = lambda size: True
    connection.relieved()
    owner.run_soon()
    assert owner.served == [*before, large, OTHER]
    assert wire.reading


def test_requests_other_than_produce_are_served_while_the_store_is_congested():
    connection, owner, wire = connect(echo)
    owner.store.congested = True
    connection.data_received(frame(OTHER) * 3)
    assert owner.served == [OTHER] * 3
    assert wire.reading


def test_reading_resumes_only_when_no_reason_to_pause_is_left():
    connection, owner, wire = connect(echo)
    owner.store.congested = True
    connection.data_received(frame(PRODUCE))
    connection.pause_writing()
    connection.resume_writing()
    owner.run_soon()
    assert not wire.reading
    owner.store.congested = False
    connection.relieved()
    owner.run_soon()
    assert wire.reading


def test_an_exception_closes_only_the_connection_where_it_happened():
    def serve(connection, body):
        if body == b"bad":
            raise ZeroDivisionError

    connection, owner, wire = connect(serve)
    connection.data_received(frame(b"good") + frame(b"bad") + frame(b"never"))
    assert owner.served == [b"good", b"bad"]
    assert wire.aborted
    assert len(owner.complaints) == 1


LARGE = bytes(module.RESERVE_FROM_BYTES)


def test_a_large_frame_reserves_request_memory_and_releases_it():
    connection, owner, _ = connect(echo, pool_bytes=100_000)
    sent = frame(LARGE)
    connection.data_received(sent[:100])
    assert owner.pool_left < 100_000
    connection.data_received(sent[100:])
    assert owner.pool_left == 100_000
    assert owner.served == [LARGE]


def test_a_large_frame_waits_for_request_memory():
    connection, owner, wire = connect(echo, pool_bytes=0)
    sent = frame(LARGE)
    connection.data_received(sent[:100])
    assert not wire.reading
    ((waiting, size),) = owner.pool_queue
    waiting.admitted(size)
    owner.run_soon()
    assert wire.reading
    connection.data_received(sent[100:])
    assert owner.served == [LARGE]
    assert owner.pool_left == size


def test_a_large_frame_keeps_its_request_memory_while_a_congested_store_delays_it():
    connection, owner, _ = connect(echo, pool_bytes=100_000)
    sent = frame(PRODUCE + LARGE)
    connection.data_received(sent[:100])
    owner.store.congested = True
    connection.data_received(sent[100:])
    assert owner.pool_left < 100_000
    owner.store.congested = False
    connection.relieved()
    owner.run_soon()
    assert owner.pool_left == 100_000


def test_a_lost_connection_cancels_its_waiting_request_and_frees_its_request_memory():
    connection, owner, _ = connect(echo, pool_bytes=100_000)
    cancelled = []
    parked = Parked()
    parked.on_cancel = lambda: cancelled.append(True)
    connection.park(parked)
    connection.data_received(frame(LARGE)[:100])
    connection.connection_lost(None)
    assert cancelled == [True]
    assert owner.pool_left == 100_000
    assert owner.lost_connections == [connection]
    assert connection.flush(0) is False


def test_an_answer_that_comes_after_the_connection_is_lost_is_dropped():
    connection, _, wire = connect()
    slot = connection.park(Parked())
    connection.connection_lost(None)
    slot.fill([b"late"], 0)
    connection.flush(0)
    assert wire.written == []


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_frames_are_parsed_wherever_the_stream_is_split(size):
    connection, owner, _ = connect(echo)
    sent = frame(b"hello") + frame(b"x") + frame(b"world")
    for start in range(0, len(sent), size):
        connection.data_received(sent[start : start + size])
    assert owner.served == [b"hello", b"x", b"world"]


def test_requests_behind_a_long_running_one_are_not_handled_until_it_ends():
    def serve(connection, body):
        echo(connection, body)
        if body == b"long":
            connection.hold()

    connection, owner, wire = connect(serve)
    connection.data_received(frame(b"long") + frame(b"next"))
    connection.data_received(frame(b"last"))
    assert owner.served == [b"long"]
    assert not wire.reading
    connection.go_on()
    owner.run_soon()
    assert owner.served == [b"long", b"next", b"last"]
    assert wire.reading


def test_a_large_request_keeps_its_memory_while_it_is_processed():
    connection, owner, _ = connect(lambda connection, body: connection.hold(), pool_bytes=100_000)
    sent = frame(LARGE)
    connection.data_received(sent[:100])
    connection.data_received(sent[100:])
    assert owner.pool_left < 100_000
    connection.go_on()
    owner.run_soon()
    assert owner.pool_left == 100_000
