"""A group whose partitions the broker assigns: it writes all changes of one event together, and decides when to assign
again. Pure.

The rule: what one event changes is written completely or not at all. Consumer groups and share groups have this in
common.
"""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from ..targets import Partitions
from .assignment import TOPICS_OF_A_UNIT, Assigned, AssignmentSteps, run_steps
from .topic_view import TopicView

Change = TypeVar("Change")


class AssigningGroup(Generic[Change]):
    """The part of a consumer group (KIP-848) or share group that writes the changes of one event together, and that
    decides when to assign again.
    """

    _topics: TopicView
    is_assigning: bool  # an assignment is being computed, in slices
    _made: list[tuple[Change, Change]]  # in this event: each change, and the change that undoes it
    _assigned_ms: int | None  # when the target was made or checked, monotonic ms
    _assigned_for: tuple[int, int] | None  # the rights' version when the target was made or checked
    _rights_then: tuple[int, int]  # the rights' version when the computation began

    @property
    @abstractmethod
    def member_ids(self) -> Collection[str]: ...
    @abstractmethod
    def subscribed_names(self) -> Collection[str]: ...
    @abstractmethod
    def begin_assignment(self) -> tuple[int, AssignmentSteps]: ...
    @abstractmethod
    def apply(self, change: Change) -> None: ...
    @abstractmethod
    def target(self, member_id: str) -> Partitions: ...
    @property
    @abstractmethod
    def _epochs(self) -> tuple[int, int]:
        """The group's epoch, and the epoch that the target assignment was made for."""

    @property
    @abstractmethod
    def _rights_changed(self) -> bool:
        """Whether ACLs or the users of members have changed since the target assignment was made."""

    @property
    @abstractmethod
    def _assignment_interval_ms(self) -> int: ...
    @property
    @abstractmethod
    def _topics_of_members(self) -> Iterable[Sequence[str]]:
        """The topic names that each member subscribes to."""

    @abstractmethod
    def _keep(self, changes: Sequence[Change]) -> None:
        """Write these changes to the log together. Raises KafkaError if that fails."""

    @abstractmethod
    def _next_epoch(self) -> None: ...
    @abstractmethod
    def _set_target(self, epoch: int, assigned: Assigned, now_ms: int, wall_ms: int) -> None: ...

    @contextmanager
    def _event(self) -> Iterator[None]:
        """Surround changes of the group. At the end, write them to the log together; if that or the block fails, undo
        them.
        """
        assert not self._made
        assigned = self._assigned_for, self._assigned_ms
        try:
            yield
            if self._made:
                self._keep([change for change, _ in self._made])
        except BaseException:
            for _, before in reversed(self._made):
                self.apply(before)
            self._assigned_for, self._assigned_ms = assigned
            raise
        finally:
            self._end_event()

    def _end_event(self) -> None:
        """Forget the changes of the event, because they are written or undone."""
        self._made = []

    # ---- the target assignment -------------------------------------------------------------------------------

    @property
    def _is_behind(self) -> bool:
        """Whether the target assignment is older than the group's epoch and must be computed: the group has members,
        and no computation is running.
        """
        epoch, target_epoch = self._epochs
        return not self.is_assigning and bool(self.member_ids) and target_epoch < epoch

    def is_assignment_due(self, now_ms: int) -> bool:
        """Return whether the target assignment is older than the group's epoch and may be computed now."""
        return self._is_behind and self._may_assign(now_ms)

    def is_assignment_doubtful(self, now_ms: int) -> bool:
        """Return whether the assignment must be computed again because access rights have changed, and may be computed
        now.
        """
        return self._rights_changed and not self.is_assigning and bool(self.member_ids) and self._may_assign(now_ms)

    def _may_assign(self, now_ms: int) -> bool:
        """Return whether the interval since the last assignment is over."""
        return self._assigned_ms is None or now_ms >= self._assigned_ms + self._assignment_interval_ms

    def _assign_at_once(self, max_units: int, now_ms: int, wall_ms: int) -> None:
        """Compute the assignment at once if it costs at most max_units; otherwise do nothing.

        The cost is about one unit for each member and partition. A larger group keeps its assignment until the
        coordinator has computed the next one in steps.
        """
        partitions = sum(size for _, size in self._topics.sizes(self.subscribed_names()))
        named = sum(map(len, self._topics_of_members))
        if len(self.member_ids) + named // TOPICS_OF_A_UNIT + partitions <= max_units:
            epoch, steps = self.begin_assignment()
            self._set_target(epoch, run_steps(steps), now_ms, wall_ms)
            self.is_assigning = False

    def take_assignment(self, epoch: int, assigned: Assigned, now_ms: int, wall_ms: int) -> None:
        """Make a computed assignment the target. Raises KafkaError if it cannot be logged; then it must be computed
        again.

        epoch: the group's epoch for which it was computed. If the target is of that epoch too, a different assignment
        becomes the target of a new epoch. An assignment for an older epoch is dropped.
        """
        self.is_assigning = False
        with self._event():
            group_epoch, target_epoch = self._epochs
            if epoch > target_epoch:
                self._set_target(epoch, assigned, now_ms, wall_ms)
            elif epoch == group_epoch:  # it was computed again because rights have changed
                self._assigned_for, self._assigned_ms = self._rights_then, now_ms
                if any(self.target(member_id) != partitions for member_id, partitions in assigned.items()):
                    self._next_epoch()
                    self._set_target(self._epochs[0], assigned, now_ms, wall_ms)
