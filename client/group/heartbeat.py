"""The heartbeat task of a member, of a share group too: it sends heartbeats between polls, and detects that the
application stopped polling.

Source: Kafka's AbstractCoordinator.HeartbeatThread, AbstractHeartbeatRequestManager; KIP-62, KIP-848.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ...protocol.errors import ErrorCode
from ...protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from ..errors import FatalError, KafkaError, UnsupportedVersionError, is_retriable
from ..net.cluster import Cluster
from ..net.connection import broken
from ..net.coordinators import CoordinatorKind
from ..net.environment import Environment
from ..settings import CLASSIC, CONSUMER, ConsumerSettings, ShareConsumerSettings
from .consumer_membership import JOINING_EPOCH, ConsumerMembership
from .heartbeat_times import HeartbeatTimes
from .membership import Turn

log = logging.getLogger("fencepost.client")

RELEASE_MS = 65_000  # by Kafka's defaults no broker has a silent member for longer than 60 s
RELEASE_PAUSE_MS = 1_000
MEMBER_CHOOSES_ID = 1  # ConsumerGroupHeartbeat from this version on (KIP-1082)


class Member(Protocol):
    """What the heartbeat task uses of a membership, whichever group protocol it speaks. Each protocol has its own
    classes of requests and responses.
    """

    @property
    def stamp(self) -> Any:
        """A value that differs after every change of generation or member id."""
        ...

    @property
    def in_generation(self) -> bool:
        """Return whether the member must send heartbeats."""
        ...

    @property
    def is_member(self) -> bool:
        """Return whether the group may count it as a member."""
        ...

    @property
    def settled(self) -> bool:
        """Return whether a poll has nothing to do for the membership."""
        ...

    @property
    def hurries(self) -> bool:
        """Return whether the next heartbeat must be sent at once."""
        ...

    def heartbeat_request(self) -> Any:
        """Return the next heartbeat request."""
        ...

    def on_heartbeat_response(self, response: Any, sent: Any) -> Turn:
        """Apply a response. sent: the stamp when the request was sent; a response to an older one is ignored."""
        ...

    def on_no_response(self, sent: Any, *, final: bool) -> None:
        """Note that a heartbeat failed without a response. sent: the stamp when it was sent. final: another would
        fail, too.
        """
        ...

    def refusal(self, response: Any) -> KafkaError:
        """Return the error for a response after which the member cannot go on."""
        ...


class HeartbeatTask:
    """Sends a member's heartbeats in the background, from `start` to `stop`.

    on_news: called after a response that needs a poll, or with an error. left_behind: called if the application does
    not poll in time.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings | ShareConsumerSettings,
        membership: Member,
        environment: Environment,
        on_news: Callable[[BaseException | None], None],
        left_behind: Callable[[], Awaitable[None]],
    ) -> None:
        assert settings.group_id
        self._cluster = cluster
        self._membership = membership
        self._clock = environment.clock
        self._target: tuple[CoordinatorKind, str] = ("group", settings.group_id)
        self._backoff_ms = settings.retry_backoff_ms
        self._timeout_ms = min(settings.request_timeout_ms, settings.session_timeout_ms)
        self._on_news = on_news
        self._left_behind = left_behind
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._broken: FatalError | None = None
        self._unreleased_ms: int | None = None  # since when another member has its instance id
        self.times = HeartbeatTimes(
            interval_ms=settings.heartbeat_interval_ms,
            session_timeout_ms=settings.session_timeout_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            now_ms=environment.clock.monotonic_ms(),
        )

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop permanently. Not async, so that a cancelled caller still stops it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    def check(self) -> None:
        """Raise FatalError if a bug has ended the task: without heartbeats the group removes the member."""
        if self._broken is not None:
            raise self._broken.with_traceback(None)

    def joined(self) -> None:
        """Begin to send heartbeats: the member has joined a new generation."""
        self.times.joined(self._clock.monotonic_ms())
        self._woken.set()

    def hurry(self) -> None:
        """Send the next heartbeat now."""
        self.times.due_ms = self._clock.monotonic_ms()
        self._woken.set()

    async def _run(self) -> None:
        """Send heartbeats until cancelled. Any other error ends it, and is kept and reported."""
        try:
            await self._run_until_cancelled()
        except Exception as error:  # nobody awaits this
            self._broken = broken("sending heartbeats failed", error)
            self._on_news(self._broken)

    async def _run_until_cancelled(self) -> None:
        """Wake when a heartbeat or a poll is due: send the heartbeat, or leave the group if the poll is late."""
        while True:
            await self._sleep()
            now_ms = self._clock.monotonic_ms()
            self.times.apply_was_polled(now_ms)
            if self._membership.is_member and self.times.poll_is_late(now_ms):
                await self._left_behind()
            elif self._membership.in_generation and now_ms >= self.times.due_ms:
                await self._send_heartbeat()

    async def _sleep(self) -> None:
        """Wait until the next heartbeat or the application's deadline for a poll, or until `joined` or `hurry` is
        called.
        """
        moments = [self.times.due_ms] if self._membership.in_generation else []
        until_ms = self.times.poll_until_ms
        if self._membership.is_member and until_ms is not None:
            moments.append(until_ms)
        elif self._membership.is_member:  # a running poll may end during this sleep
            moments.append(self._clock.monotonic_ms() + self.times.max_poll_interval_ms)
        self._woken.clear()
        try:
            left_ms = max(0, min(moments) - self._clock.monotonic_ms()) if moments else None
            async with asyncio.timeout(None if left_ms is None else left_ms / 1000):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _send_heartbeat(self) -> None:
        """Send one heartbeat and apply its response or failure."""
        membership: Any = self._membership  # of either kind: a response belongs to the kind that made the request
        times, stamp = self.times, membership.stamp
        times.sent(self._clock.monotonic_ms())
        if isinstance(membership, ConsumerMembership) and not await self._has_left_before(membership):
            return
        try:
            response = await self._ask(membership.heartbeat_request())
        except Exception as error:
            final = not is_retriable(error)
            membership.on_no_response(stamp, final=final)
            now_ms = self._clock.monotonic_ms()
            times.failed(now_ms, self._backoff_ms)
            if times.session_is_over(now_ms):
                self._cluster.forget_coordinator(*self._target)
            self._on_news(error if final else None)
            return
        now_ms = self._clock.monotonic_ms()
        times.heard(now_ms, getattr(response, "heartbeat_interval_ms", 0))
        turn = membership.on_heartbeat_response(response, stamp)
        if turn is Turn.FIND:
            self._cluster.forget_coordinator(*self._target)
        if turn is Turn.WAIT:
            turn = self._wait_for_release(membership, response, now_ms)
        else:
            self._unreleased_ms = None
        if turn in (Turn.FIND, Turn.AGAIN):
            times.failed(now_ms, self._backoff_ms)
        elif turn is not Turn.WAIT and membership.hurries:
            times.due_ms = now_ms
        if not membership.settled:
            self._on_news(None)
        if turn in (Turn.REFUSE, Turn.COMPLAIN):
            self._on_news(membership.refusal(response))

    def _wait_for_release(self, membership: ConsumerMembership, response: Any, now_ms: int) -> Turn:
        """Return WAIT while the instance id may belong to another member that has died. After RELEASE_MS, when its
        session must have ended, end the membership and return REFUSE.
        """
        since_ms = self._unreleased_ms
        if since_ms is None:
            since_ms = self._unreleased_ms = now_ms
            log.warning(
                "group %s: the broker still has another member with the group_instance_id %r; this one waits until that"
                " has left or its session has ended, at most %d s: %s",
                *(self._target[1], membership.terms.group_instance_id, RELEASE_MS // 1000, response.error_message),
            )
        if now_ms - since_ms < RELEASE_MS:
            self.times.failed(now_ms, RELEASE_PAUSE_MS)
            return Turn.WAIT
        self._unreleased_ms = None
        membership.on_no_response(membership.stamp, final=True)
        return Turn.REFUSE

    async def _has_left_before(self, membership: ConsumerMembership) -> bool:
        """Leave a former membership that the broker may still have. Returns whether the join may follow."""
        request, stamp = membership.farewell, membership.stamp
        if request is None:
            return True
        try:
            code = (await self._cluster.ask(self._target, request, timeout_ms=self._timeout_ms)).error_code
        except Exception as error:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE if is_retriable(error) else ErrorCode.UNKNOWN_SERVER_ERROR
        if membership.farewell is not request:
            return False  # it is leaving altogether
        turn = membership.on_farewell(code)
        if turn is Turn.FIND:
            self._cluster.forget_coordinator(*self._target)
        if turn is not Turn.GO_ON:
            self.times.failed(self._clock.monotonic_ms(), self._backoff_ms)
        return turn is Turn.GO_ON and membership.stamp == stamp

    async def _ask(self, request: Any) -> Any:
        """Send a request to the group's coordinator and return the response. Raises UnsupportedVersionError before a
        member joins by KIP-848 at a broker that does not support it.
        """
        if isinstance(request, ConsumerGroupHeartbeatRequest) and request.member_epoch == JOINING_EPOCH:
            connection = await self._cluster.coordinator(*self._target)
            if not connection.knows(ConsumerGroupHeartbeatRequest, MEMBER_CHOOSES_ID):
                raise UnsupportedVersionError(
                    f"{connection.name} does not support the group protocol {CONSUMER!r} (KIP-848)",
                    hint=f"use group_protocol={CLASSIC!r}, or a broker of Kafka 4.0 or newer",
                )
        return await self._cluster.ask(self._target, request, timeout_ms=self._timeout_ms)
