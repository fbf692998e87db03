"""One pure group with a clock of its own, and members that keep what they are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencepost.broker.groups.group_records import KeptGroup
from fencepost.broker.groups.machine import Group, Rules
from fencepost.broker.groups.members import Joined, Joining, Leaving, Synced, Syncing
from fencepost.broker.groups.states import State
from fencepost.protocol.errors import ErrorCode, KafkaError

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"x"),)


class Answer:
    """The answer to one join or sync, once it was given; a second answer is a failure."""

    def __init__(self) -> None:
        self.got: Any = None
        self.at_ms: int | None = None
        self.now: Any = None

    def __call__(self, got: Joined | Synced) -> None:
        assert self.got is None, f"answered twice: {self.got}, then {got}"
        self.got = got

    @property
    def error(self) -> ErrorCode | None:
        return None if self.got is None else self.got.error


class GroupDriver:
    """One group, its clock `now_ms`, and the records that it logged."""

    def __init__(self, *, initial_delay_ms: int = 0, **rules: int) -> None:
        self.now_ms = 1_000
        self.logged: list[KeptGroup] = []
        self.log_fails: KafkaError | None = None
        self.ids = 0
        self.rules = Rules(initial_delay_ms=initial_delay_ms, **rules)
        self.group = Group("g", self.rules, self._log)

    def _log(self, group: Group, kept: KeptGroup) -> None:
        if self.log_fails is not None:
            raise self.log_fails
        self.logged.append(kept)

    def new_id(self) -> str:
        self.ids += 1
        return f"m{self.ids}"

    def restarted(self) -> None:
        """Replace the group by what a broker builds from its last record after a kill."""
        self.group = Group.restore("g", self.rules, self._log, self.logged[-1], self.now_ms)

    # ---- requests --------------------------------------------------------------------------------------------

    def join(self, member_id: str = "", instance_id: str | None = None, **more: Any) -> Answer:
        answer = Answer()
        asked = Joining(
            member_id,
            instance_id,
            "client",
            "/127.0.0.1",
            **{
                "session_timeout_ms": SESSION_MS,
                "rebalance_timeout_ms": REBALANCE_MS,
                "protocol_type": "consumer",
                "protocols": RANGE,
                **more,
            },
        )
        self.group.join(asked, answer, self.now_ms, self.new_id)
        return answer

    def sync(self, member_id: str, assignments: Mapping[str, bytes] | None = None, **more: Any) -> Answer:
        answer = Answer()
        generation = more.pop("generation", self.group.generation)
        self.group.sync(Syncing(member_id, generation, assignments=assignments or {}, **more), answer, self.now_ms)
        return answer

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance_id, generation, self.now_ms)

    def leave(self, *members: str | Leaving) -> list[ErrorCode]:
        leaving = [each if isinstance(each, Leaving) else Leaving(each) for each in members]
        return self.group.leave(leaving, self.now_ms)

    def commit(
        self, member_id: str, generation: int | None = None, instance_id: str | None = None, **more: bool
    ) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        transactional = more.get("transactional", False)
        try:
            self.group.check_commit(member_id, instance_id, generation, self.now_ms, transactional=transactional)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def wait(self, ms: int) -> None:
        """Move the clock forward; each alarm rings at its time."""
        end_ms = self.now_ms + ms
        while self.group.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.group.wake_ms)
            self.group.expire(self.now_ms)
            assert self.group.wake_ms > self.now_ms, "it would ring for ever"
        self.now_ms = end_ms

    # ---- ready-made ------------------------------------------------------------------------------------------

    def member(self, instance_id: str | None = None, **more: Any) -> tuple[str, Answer]:
        """Let a new member with an id join. Returns the id, and the answer that it waits for."""
        if instance_id is not None:
            answer = self.join("", instance_id, **more)
            return next(reversed(self.group.members)), answer
        reported = self.join(**more)
        assert reported.error is ErrorCode.MEMBER_ID_REQUIRED
        return reported.got.member_id, self.join(reported.got.member_id, **more)

    def stable(self, count: int = 1, *, static: bool = False, **more: Any) -> list[str]:
        """Return that many members of a stable group, the leader first; each is assigned its own id."""
        ids = [self.member(f"i{n}" if static else None, **more)[0] for n in range(count)]
        self.wait(self.rules.initial_delay_ms)
        return self.synced(ids, static=static, **more)

    def synced(self, ids: list[str], *, static: bool = False, **more: Any) -> list[str]:
        """Bring all these members into the same generation, with assignments. Returns their ids, the leader's first."""
        if self.group.state is State.PREPARING_REBALANCE:
            for member_id in ids:
                if self.group.members[member_id].join is None:
                    self.join(member_id, self.group.members[member_id].instance_id, **more)
        assert self.group.state is State.COMPLETING_REBALANCE
        leader = self.group.leader
        assert leader is not None
        for member_id in ids:
            if member_id != leader:
                self.sync(member_id)
        self.sync(leader, {member_id: member_id.encode() for member_id in ids})
        assert self.group.state is State.STABLE
        return sorted(ids, key=lambda member_id: member_id != leader)
