"""One client's connection: requests in, replies out in the order of their requests, and limits on both.

The rules: replies leave in request order (slots), each only when it is known and the unit it waits for is released;
at most one write per turn, by flush(); a client that does not read, asks too much ahead, or sends while the store is
full is not read until that has passed, and keeps nobody else from being served. Bytes that are no frame close this
connection and no other. Pure except for the transport it is given. Source: Kafka's SocketServer, but pipelined.
"""

from collections import deque
from typing import Any

from ...effects.net import has_left
from ...protocol.errors import MalformedFrame
from ...protocol.framing import PREFIX_BYTES, Framer
from ...protocol.primitives import Buffer, Readable
from ...storage.log.file_parts import FILE_PART_FROM_BYTES, release
from ..config.listener_settings import ListenerSettings
from ..security.principals import ANONYMOUS, Session
from .owner import Owner
from .sending import Overflow, Transport, send
from .waiting import NOT_YET, Parked, Slot

JOIN_BELOW_BYTES = FILE_PART_FROM_BYTES  # replies that are smaller together are one write: none has a FilePart
WAITING_REPLIES = 4096  # unanswered requests after which a client is not read further
WAITING_BYTES = 1 << 20  # bytes of unsent replies after which a client is not read further
SMALL_REPLY_BYTES = 256  # replies up to this size do not count for WAITING_BYTES: WAITING_REPLIES of them are little
RESERVE_FROM_BYTES = 16 << 10  # a frame of this size or more must reserve memory before it is read
STEP_BYTES = 1 << 20  # a larger frame reserves so much memory at a time

# Reasons for not reading, as bits.
PEER_DOES_NOT_READ = 1
TOO_MUCH_AHEAD = 2
STORE_IS_FULL = 4
NO_ROOM_FOR_FRAME = 8
CLOSING = 16
AT_WORK = 32
THROTTLED = 64
LOGGING_IN = 128  # beside AT_WORK, which ends when the request of the login has been handled

PRODUCE = b"\x00\x00"  # the key with which a frame begins that will be appended


class Connection:
    """The requests and replies of one client, and the reasons for which it is not read for now.

    slots: (unit, reply) in the order of the requests; a reply is sent when its unit (journal entry) is durable. It is
    `bytes` if it is small and its unit is not below that of the one before; None closes the connection there.
    """

    __slots__ = (
        "_backlog",
        "_framer",
        "_metrics",
        "_other_replies",
        "_out_bytes",
        "_owner",
        "_reading",
        "_reserved_bytes",
        "_reserved_for",
        "_stopped",
        "_store",
        "bytes_in",
        "bytes_out",
        "client_host",
        "client_id",
        "client_software",
        "idle_since_ms",
        "large_bytes",
        "listener",
        "listener_address",
        "login",
        "newest_unit",
        "number",
        "requests",
        "route",
        "seen",
        "session",
        "slots",
        "transport",
        "unsent_bytes",
    )

    def __init__(self, owner: "Owner[Connection]", max_frame_bytes: int) -> None:
        self.transport: Transport | None = None
        self.client_host = ""
        self.client_id: str | None = None
        self.session = Session(ANONYMOUS, "")  # replaced when the address and the user are known
        self.login: Any = None  # a ConnectionLogin, if its listener asks for a login
        self.client_software = ""  # name and version, from ApiVersions
        self.listener: ListenerSettings | None = None  # the listener that accepted it
        self.listener_address: tuple[str, int] = ("", 0)
        self.number = 0  # higher for connections accepted later
        self.seen = True  # bytes were received or sent since is_active()
        self.unsent_bytes = 0  # bytes that were not sent at the last is_active()
        self.idle_since_ms = 0
        self.large_bytes = 0  # bytes received as parts of large frames
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0  # received so far
        self.newest_unit = 0  # the newest unit that a request wrote, or whose reply waits for it
        self.route: Any = None  # of the fast path of Produce: about the last request
        self._owner = owner
        self._metrics = owner.metrics
        self._store = owner.store
        self._framer = Framer(max_frame_bytes)
        self.slots: deque[tuple[int, bytes | list[Buffer] | Slot | None]] = deque()
        self._backlog: deque[Readable] = deque()
        self._out_bytes = 0  # size of the replies in slots, set or expected
        self._other_replies = 0  # slots whose reply is not bytes
        self._reserved_bytes = 0
        self._reserved_for = 0  # the number of the frame for which memory is reserved
        self._reading = True
        self._stopped = 0  # reasons for not reading, as bits

    def belong_to(self, owner: "Owner[Connection]", max_frame_bytes: int) -> None:
        """Let this owner handle the connection's requests from now on, up to this frame size."""
        self._owner = owner
        self._framer.max_bytes = max_frame_bytes

    # ---- requests in -----------------------------------------------------------------------------------------

    def data_received(self, chunk: bytes) -> None:
        """Handle every complete request in the bytes that arrived, unless there is a reason to wait."""
        self.seen = True
        self.bytes_in += len(chunk)
        owner = self._owner
        held_up = self._stopped or self._backlog or self._reserved_bytes or self._store.congested
        if not held_up and self._framer.is_one_small_frame(chunk):
            # Nearly all chunks are one frame. The general way below does the same, and takes 0.4 us more.
            self.requests += 1
            try:
                owner.serve(self, chunk[PREFIX_BYTES:])
            except Exception as error:
                owner.failed(self, error)
            if len(self.slots) > WAITING_REPLIES:
                self._stop(TOO_MUCH_AHEAD)
            owner.touch(self)
        elif not self._stopped & CLOSING:
            self._take_apart(chunk)

    def _take_apart(self, chunk: bytes) -> None:
        """Split the received bytes into requests; handle or (while reading is paused) queue the complete ones."""
        framer = self._framer
        try:
            frames = framer.feed(chunk)
        except MalformedFrame as error:
            self.fail(str(error))  # whole frames before it in this chunk are not handled, either
            return
        self.requests += len(frames)
        owner, held_back = self._owner, self._stopped
        if held_back or self._backlog or self._store.congested:
            self._backlog.extend(frames)
            self._work()
        else:
            serve = owner.serve
            try:
                for frame in frames:
                    if self._stopped or (len(frame) >= RESERVE_FROM_BYTES and self._waits_for_store(frame)):
                        self._backlog.append(frame)
                    else:
                        serve(self, frame)
            except Exception as error:
                owner.failed(self, error)
        if self._reserved_bytes or framer.wanted_bytes >= RESERVE_FROM_BYTES:
            self.large_bytes += len(chunk)
            self._make_room()
        if len(self.slots) > WAITING_REPLIES:
            self._stop(TOO_MUCH_AHEAD)
        owner.touch(self)

    def _work(self) -> None:
        """Handle the requests in the backlog, in order, until there is a reason to wait."""
        owner, backlog = self._owner, self._backlog
        while backlog and not self._stopped:
            if self._waits_for_store(backlog[0]):
                return
            try:
                owner.serve(self, backlog.popleft())
            except Exception as error:
                owner.failed(self, error)
            if len(self.slots) > WAITING_REPLIES:
                self._stop(TOO_MUCH_AHEAD)

    def _waits_for_store(self, frame: Readable) -> bool:
        """Return whether this request is a Produce for which the store has no room; then pause reading until it has."""
        if frame[:2] != PRODUCE:
            return False
        store, size = self._store, len(frame)
        if not store.congested and (size < RESERVE_FROM_BYTES or store.has_room_for(size)):
            return False
        self._stop(STORE_IS_FULL)
        self._owner.stalled(self)
        return True

    def _go_on(self) -> None:
        """Handle waiting requests, and read again unless a reason not to is left. Called when one such has ended."""
        if self.transport is not None and not self._stopped & CLOSING:
            self._work()
            self._make_room()
            if not self._stopped and not self._reading:
                self._reading = True
                self.transport.resume_reading()
            self._owner.touch(self)

    def _stop(self, reason: int) -> None:
        """Pause reading for this reason: a bit of `_stopped`, such as THROTTLED."""
        if self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()
        self._stopped |= reason

    def pause_again(self) -> None:
        """Pause reading again if there is still a reason. For uvloop, which resumes reading after connection_made."""
        if not self._reading and not self._stopped & CLOSING and self.transport is not None:
            self.transport.pause_reading()

    def _allow(self, reason: int) -> None:
        """End this reason for not reading. If none is left, handle requests again in a later turn of the loop."""
        if self._stopped & reason:
            self._stopped &= ~reason
            if not self._stopped:
                self._owner.soon(self._go_on)

    def _make_room(self) -> None:
        """Reserve memory for a large request that arrives, or pause; release the memory of one that was handled."""
        if self._backlog or self._stopped & (AT_WORK | LOGGING_IN):  # the frame may be waiting there
            return
        framer = self._framer
        if self._reserved_for != framer.completed:  # another frame: it must wait for its turn
            self._give_back_room()
            self._reserved_for = framer.completed
        wanted, reserved = framer.wanted_bytes, self._reserved_bytes
        if wanted > STEP_BYTES:
            wanted = min(wanted, (framer.held_bytes // STEP_BYTES + 1) * STEP_BYTES)
        elif wanted < RESERVE_FROM_BYTES:
            wanted = 0
        if wanted > reserved and not self._stopped & NO_ROOM_FOR_FRAME:
            if self._owner.reserve(self, wanted - reserved):
                self._reserved_bytes = wanted
            else:
                self._stop(NO_ROOM_FOR_FRAME)

    def _give_back_room(self) -> None:
        """Release the memory reserved for a large request."""
        reserved, self._reserved_bytes = self._reserved_bytes, 0
        if reserved:
            self._owner.give_back(self, reserved)

    def admitted(self, size_bytes: int) -> None:
        """Continue to read the large request, for which size_bytes more of memory are reserved. Called by the owner."""
        self._reserved_bytes += size_bytes
        self._allow(NO_ROOM_FOR_FRAME)

    @property
    def waits_for_broker(self) -> bool:
        """Whether reading is paused because of the broker (a full store, work to do), not because of the client."""
        return bool(self._stopped & (STORE_IS_FULL | AT_WORK | NO_ROOM_FOR_FRAME | LOGGING_IN))

    @property
    def missing_bytes(self) -> int:
        """The number of bytes of the current request that have not arrived; 0 if none is incomplete."""
        return max(0, self._framer.wanted_bytes - self._framer.held_bytes)

    def relieved(self) -> None:
        """Read requests again, because the store has room. Called by the owner."""
        self._allow(STORE_IS_FULL)

    def put_back(self, frame: Readable) -> None:
        """Put the current request back, before later ones. None of them is handled until go_on_now() is called."""
        self._backlog.appendleft(frame)
        self.hold()

    def hold(self, reason: int = AT_WORK) -> None:
        """Do not handle later requests until go_on() or go_on_now() is called. reason: a bit of `_stopped`."""
        self._stop(reason)

    def mute(self) -> None:
        """Do not handle further requests until unmute(), because the client is over a quota. Replies are still sent."""
        self._stop(THROTTLED)

    def unmute(self) -> None:
        """Handle requests again, because the time for which the client was throttled is over."""
        self._allow(THROTTLED)

    def is_active(self) -> bool:
        """Return whether anything was received or sent since the last call, or the broker makes the client wait."""
        seen, unsent_bytes = self.seen, self.unsent_bytes
        self.seen = False
        self.unsent_bytes = 0 if self.transport is None else self.transport.get_write_buffer_size()
        return seen or self.unsent_bytes != unsent_bytes or self.waits_for_broker

    def has_left(self) -> bool:
        """Return whether the client has closed its side; no callback says so while reading is paused. Thread-safe."""
        transport = self.transport
        return transport is None or has_left(transport)

    def go_on(self, reason: int = AT_WORK) -> None:
        """End the wait that hold() has begun. Later requests are handled in a later turn of the loop."""
        self._allow(reason)

    def go_on_now(self) -> None:
        """End the wait that hold() has begun. Later requests are handled before this returns."""
        if self._stopped & AT_WORK:
            self._stopped &= ~AT_WORK
            if not self._stopped:
                self._go_on()

    # ---- replies out -----------------------------------------------------------------------------------------

    def reply(self, reply: list[Buffer], unit: int) -> None:
        """Reply to the current request, after earlier replies and once this journal unit (0: none) is durable."""
        first = reply[0]
        self.newest_unit = unit or self.newest_unit
        if unit and len(reply) == 1 and isinstance(first, bytes) and len(first) <= SMALL_REPLY_BYTES:
            self.slots.append((unit, first))
            return
        self.slots.append((unit, reply))
        self._other_replies += 1
        self.count(sum(map(len, reply)))

    def park(self, parked: Parked) -> Slot:
        """Reserve the current request's place among the replies, for what `parked` gives later. Returns the place."""
        slot = Slot(self, parked)
        self.slots.append((0, slot))
        self._other_replies += 1
        if parked.given is NOT_YET:
            parked.slot = slot
            slot.expect(parked.expected_bytes)
        return slot

    def take_back(self) -> tuple[int, list[Buffer] | Slot]:
        """Remove the last reply, in the turn in which it was set. Returns (journal unit, reply). For tests."""
        unit, reply = self.slots.pop()
        assert reply is not None
        if isinstance(reply, bytes):
            return unit, [reply]
        self._other_replies -= 1
        if isinstance(reply, Slot):
            reply.expect(0)
        else:
            self._out_bytes -= sum(map(len, reply))
        return unit, reply

    def filled(self, size_bytes: int) -> None:
        """Send a parked reply, which is ready now, in its turn. size_bytes: by how much it is larger than expected."""
        self.count(size_bytes)
        self._owner.touch(self)

    def count(self, size_bytes: int) -> None:
        """Add to the size of unsent replies; a negative number is subtracted. Too many bytes pause reading."""
        self._out_bytes += size_bytes
        if self._out_bytes > WAITING_BYTES:
            self._stop(TOO_MUCH_AHEAD)

    def flush(self, released_unit: int) -> bool:
        """Send, in order, replies with a unit up to the durable `released_unit`. Returns whether the next one waits."""
        slots, transport = self.slots, self.transport
        if self._other_replies or self._stopped or not slots or transport is None:
            return self._flush_in_turn(released_unit)
        # The commonest case. Units never decrease: if the last one is durable, all are sent; if the first is not, none.
        if slots[-1][0] > released_unit:
            return slots[0][0] > released_unit or self._flush_in_turn(released_unit)
        out: Any = slots.popleft()[1]
        if slots:
            more: list[Any] = [reply for _, reply in slots]
            out = b"".join((out, *more))
            slots.clear()
        transport.write(out)
        self.seen = True
        self.bytes_out += len(out)
        return False

    def _flush_in_turn(self, released_unit: int) -> bool:
        """Send, in order, every reply that may be sent, of any kind; see flush()."""
        slots = self.slots
        out: list[Buffer] = []
        leaving, waits, closes = 0, False, False
        for unit, reply in slots:
            if isinstance(reply, Slot):
                if reply.reply is None:
                    break
                unit, reply = reply.unit, reply.reply
            if unit > released_unit:
                waits = True
                break
            leaving += 1
            if isinstance(reply, bytes):
                out.append(reply)
                continue
            self._other_replies -= 1
            if reply is None:
                closes = True
                break
            out += reply
            self._out_bytes -= sum(map(len, reply))
        if leaving == len(slots):
            slots.clear()
        else:
            for _ in range(leaving):
                slots.popleft()
        if out:
            self._write(out)
        if closes:
            self.hang_up()
            return False
        if self._stopped & TOO_MUCH_AHEAD and len(slots) <= WAITING_REPLIES and self._out_bytes <= WAITING_BYTES:
            self._allow(TOO_MUCH_AHEAD)
        return waits

    def _write(self, out: list[Buffer]) -> None:
        """Write these buffers to the transport, as one if they are small, and count their bytes."""
        transport = self.transport
        if transport is None:
            return
        if len(out) == 1:
            size = len(out[0])
            transport.write(out[0])
        else:
            size = sum(map(len, out))
            if size < JOIN_BELOW_BYTES:
                transport.write(b"".join(out))
            else:
                send(self, out, self._metrics)
        self.seen = True
        self.bytes_out += size

    # ---- the transport's side --------------------------------------------------------------------------------

    @property
    def writing_paused(self) -> bool:
        return bool(self._stopped & PEER_DOES_NOT_READ)

    def pause_writing(self) -> None:
        """Handle no more requests, because the client does not read. Called when the transport's buffer is full."""
        self._stop(PEER_DOES_NOT_READ)
        if isinstance(self.transport, Overflow):
            self.transport.paused()

    def resume_writing(self) -> None:
        """Handle requests again, because the client reads again. Called by the transport."""
        if not isinstance(self.transport, Overflow) or self.transport.resumed():
            self._allow(PEER_DOES_NOT_READ)

    def eof_received(self) -> bool:
        """Return False, so that the transport closes: a client that wants its answers keeps its side open."""
        return False

    def connection_lost(self, reason: BaseException | None) -> None:
        """Release all resources, and cancel this client's waiting requests. Called by the transport."""
        if isinstance(self.transport, Overflow):
            self.transport.drop()
        self.transport = None
        self._stopped |= CLOSING
        self._give_back_room()
        self._backlog.clear()
        slots, self.slots = self.slots, deque()
        for _, reply in slots:
            if isinstance(reply, Slot):
                reply.parked.cancel()
                reply = reply.reply
            if isinstance(reply, list):
                release(reply)
        self._owner.lost(self)

    # ---- the end ---------------------------------------------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Close the connection because of an invalid request, after the replies to earlier requests."""
        if not self._stopped & CLOSING:
            self._owner.malformed(self, reason)
            self.close_after_replies()

    def close_after_replies(self, unit: int = 0) -> None:
        """Read no more. Close when all earlier requests are answered and this unit of the journal is durable."""
        if not self._stopped & CLOSING:
            self._stop(CLOSING)
            self._backlog.clear()
            self.slots.append((unit, None))
            self._other_replies += 1
            self._owner.touch(self)

    def close_after_writes(self) -> None:
        """Read no more. Close after the replies, when all that any connection has written so far is durable."""
        self.close_after_replies(self._store.last_unit)

    def read_no_more(self) -> None:
        """Ignore all bytes that arrive from now on; replies are still sent."""
        self._stop(CLOSING)

    def hang_up(self) -> None:
        """Read no more. Close when all bytes given to the transport are sent. Waiting requests are not answered."""
        self._stop(CLOSING)
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close at once. Unsent replies are dropped, and waiting requests are not answered."""
        if self.transport is not None:
            self._stopped |= CLOSING
            self.transport.abort()
