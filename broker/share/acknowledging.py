"""The acknowledgements of one request, in all share partitions that it names: decided in steps, then written as one
unit.

The rules: in each share partition the acknowledgements of a request succeed or fail as a whole; those of a transaction
do so in all share partitions together. decide_ahead() changes nothing, and other requests are served between its steps.
finish() and finish_in_transaction() decide again whatever others have changed since. They, or their callers, log and
apply the result in the same step, so the state that was decided about cannot have changed then (portions.py).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ..metrics import Metrics
from ..net.turns import Steps
from ..topics.names import TopicIdPartition
from .counts import count_acknowledged
from .logged import EncodedPending, EncodedUpdate
from .machine import SharePartition
from .portions import RUNS, Decide, Portions
from .runs import Runs
from .state_log import ShareStateLog
from .values import AckRange, SharePartitionKey

LOOKS = 4  # how often decide_ahead() decides again what others have changed, before it leaves that to finish()
UNITS_OF_A_RUN = 4  # the work of deciding about one run, in the units of Steps

Answers = dict[TopicIdPartition, KafkaError | None]
Find = Callable[[SharePartitionKey], SharePartition]
"""Returns a share partition. Raises UNKNOWN_TOPIC_OR_PARTITION, COORDINATOR_NOT_AVAILABLE."""
HasMemory = Callable[[SharePartitionKey, int, int], bool]
"""Returns whether a share partition may have this many more runs, as SharePartitions.has_memory() does."""


class Acknowledging:
    """The acknowledgements of one request, in all share partitions that it names."""

    def __init__(
        self,
        group: str,
        acks: Mapping[TopicIdPartition, Sequence[AckRange]],
        state_log: ShareStateLog,
        find: Find,
        decide_of: Callable[[SharePartitionKey, SharePartition], Decide],
        has_memory: HasMemory,
    ) -> None:
        """acks: ranges of offsets with their types, by partition. find: returns a share partition, or raises
        KafkaError. decide_of: returns the function that decides acknowledgements in a share partition. has_memory:
        returns whether a share partition may have more runs.
        """
        self.group = group
        self._acks = {SharePartitionKey(group, *place): ranges for place, ranges in acks.items()}
        self._state_log = state_log
        self._find = find
        self._decide_of = decide_of
        self._has_memory = has_memory
        self._portions: dict[SharePartitionKey, Portions] = {}
        self._wrong: dict[SharePartitionKey, KafkaError] = {}

    def refuse(self, place: TopicIdPartition, error: KafkaError) -> None:
        """Do not apply the acknowledgements of this partition; answer with this error instead."""
        key = SharePartitionKey(self.group, *place)
        if key in self._acks:
            self._wrong[key] = error

    def decide_ahead(self) -> Steps[None]:
        """Decide the acknowledgements of a long request in steps, so that finish() has little left to do. What others
        have changed meanwhile is decided again, LOOKS times at most. Does nothing for a short request, which finish()
        decides at once.

        Yields the work that each step took.
        """
        if self._is_short():
            return
        for key in self._acks:
            yield from self._take_steps(key, Portions.decide_ahead)
        for _ in range(LOOKS):
            before = len(self._wrong)
            has_changed = False
            for key in self._acks:
                has_changed |= yield from self._take_steps(key, Portions.decide_again)
            if not has_changed and len(self._wrong) == before:
                return

    def _is_short(self) -> bool:
        """Return whether the request has so little to decide that one step may do it: RUNS at most, counting for each
        of its ranges the types it gives or the runs (ranges of records in the same state) it touches, if they are more.
        """
        touched = 0
        for key, acks in self._acks.items():
            runs = self._runs_of(key)
            for first, last, types in acks:
                touched += max(1, len(types), 0 if runs is None else runs.count(first, last))
                if touched > RUNS:
                    return False
        return True

    def _runs_of(self, key: SharePartitionKey) -> Runs | None:
        """Return the runs of the share partition; None if it is unknown or offline now."""
        try:
            return self._find(key).runs
        except KafkaError:  # finish() looks again, and refuses it if it is still not there
            return None

    def _take_steps(self, key: SharePartitionKey, steps: Callable[[Portions], Iterator[int]]) -> Steps[bool]:
        """Run steps that decide a share partition's acknowledgements; yields the work that each took. Returns whether
        there were any steps.

        A KafkaError is not raised, but noted as the error of the share partition.
        """
        has_done = False
        try:
            if key not in self._wrong:
                for runs in steps(self._portions_of(key)):
                    has_done = True
                    yield 1 + runs * UNITS_OF_A_RUN
        except KafkaError as error:
            self._wrong[key] = error
        return has_done

    def _portions_of(self, key: SharePartitionKey) -> Portions:
        """Return the decisions about this share partition, made in portions; new ones if it was deleted and created
        again.
        """
        machine, portions = self._find(key), self._portions.get(key)
        if portions is None or portions.machine is not machine:
            portions = Portions(machine, self._acks[key], self._decide_of(key, machine))
            self._portions[key] = portions
        return portions

    def _finished(self) -> dict[SharePartitionKey, Portions]:
        """Decide what is not decided yet, and decide again what has changed since it was decided. Returns the decisions
        of the share partitions without an error.
        """
        finished = {}
        for key in self._acks:
            try:
                if key not in self._wrong:
                    portions = self._portions_of(key)
                    portions.finish()
                    self._check_memory(key, portions)
                    finished[key] = portions
            except KafkaError as error:
                self._wrong[key] = error
        return finished

    def _check_memory(self, key: SharePartitionKey, portions: Portions) -> None:
        """Raise INVALID_RECORD_STATE if there is no memory for the additional runs (ranges of records in the same
        state) that the acknowledgements make. The records are then delivered again later. Acknowledgements may take
        twice the limit, because new deliveries stop at the limit itself.
        """
        if portions.more_runs > 0 and not self._has_memory(key, portions.more_runs, 2):
            text = "there is no memory for so many ranges of different states: group.metadata.max.bytes"
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, text)

    def finish(self, metrics: Metrics) -> tuple[Answers, list[SharePartitionKey]]:
        """Log and apply, in one unit, the acknowledgements of partitions without an error.

        Returns the error of each partition (None for success), and the share partitions that have changed.
        """
        finished = self._finished()
        changes, rest = [], []
        for key, portions in finished.items():
            states = portions.encoded()
            if states.number:
                changes.append((key, EncodedUpdate(*portions.position(), states, portions.apply)))
            else:
                rest.append(portions)
        try:
            if changes:
                self._state_log.commit(changes)
        except KafkaError as error:
            return {key[1:]: self._wrong.get(key, error) for key in self._acks}, []
        for portions in rest:
            portions.apply()
        for portions in finished.values():
            count_acknowledged(metrics, portions.records_by_type(), portions.archived)
        return {key[1:]: self._wrong.get(key) for key in self._acks}, [key for key, _ in changes]

    def finish_in_transaction(
        self,
    ) -> tuple[list[tuple[SharePartitionKey, EncodedPending]], dict[TopicIdPartition, KafkaError]]:
        """Decide the acknowledgements of a transaction. Returns those that become pending, for
        ShareStateLog.pending_unit(), and the errors of partitions. Changes nothing.
        """
        finished = self._finished()
        changes = []
        for key, portions in finished.items():
            states = portions.encoded()
            if states.number:
                changes.append((key, EncodedPending(states, portions.apply_pending)))
        return changes, {key[1:]: error for key, error in self._wrong.items()}

    def count(self, metrics: Metrics) -> None:
        """Count the records acknowledged in a transaction, by type. Records that the transaction archives are counted
        when it commits.
        """
        for portions in self._portions.values():
            count_acknowledged(metrics, portions.records_by_type(), 0)
