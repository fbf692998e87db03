"""A transactional id in every state, and what a decision comes to, in words."""

from fencepost.broker.transactions.states import machine
from fencepost.broker.transactions.states.init_producer_id import Initialisation, Limits, init_producer_id
from fencepost.broker.transactions.states.transaction import Decision, Inputs, Prepared, Status, Transaction

PRODUCER, EPOCH, NEXT_PRODUCER = 7, 5, 900
OPENED_AT = 40
PARTITIONS = {("orders", 0): 11, ("orders", 1): 12, ("__consumer_offsets", 3): 13}
NEW = {("payments", 0): 21}
OPEN = (Status.ONGOING, Status.PREPARE_COMMIT, Status.PREPARE_ABORT)
ENDED = (Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)


class Environment:
    """What a decision needs: two clocks, and ids that count up. `inputs()` are those of now."""

    def __init__(self) -> None:
        self.now_ms, self.age_ms, self.ids_given = 1_000_000, 5_000, 0

    def new_producer_id(self) -> int:
        self.ids_given += 1
        return NEXT_PRODUCER + self.ids_given - 1

    def next_offset(self, transactional_id: str) -> int:
        """Return the same offset for every transaction."""
        return OPENED_AT

    def inputs(self, *, ephemeral: bool = False) -> Inputs:
        return Inputs(self.now_ms, self.age_ms, self.new_producer_id, self.next_offset, ephemeral)

    def passes(self, ms: int) -> None:
        self.now_ms += ms
        self.age_ms += ms


def transaction(status: Status = Status.EMPTY, epoch: int = EPOCH, *, version: int = 2, **changed) -> Transaction:
    """Return a transactional id in `status`, as TV2 (or version 0) left it, at this epoch."""
    is_open = status in OPEN
    ended = status in (*ENDED, Status.PREPARE_COMMIT, Status.PREPARE_ABORT)
    return Transaction(
        "id",
        PRODUCER,
        epoch,
        60_000,
        status,
        dict(PARTITIONS) if is_open else {},
        start_ms=-1 if status is Status.EMPTY else 900_000,
        last_update_ms=900_000,
        started_age_ms=-1 if status is Status.EMPTY else 4_000,
        updated_age_ms=4_000,
        last_producer_epoch=epoch - 1 if ended and version == 2 else -1,
        client_version=version,
    )._replace(**changed)


def prepared(epoch: int = EPOCH, number: int = 3, **changed) -> Transaction:
    """Return the state of an id whose transaction waits for decision `number` of the ledger entry "sink"."""
    return transaction(Status.ONGOING, epoch, prepared=Prepared("sink", number, 3_600_000, 4_500))._replace(**changed)


def held(epoch: int = EPOCH, number: int = 3, *, timeout_ms: int = 3_600_000) -> Transaction:
    """Return the state of an id whose transaction is held: only decision `number` can end it."""
    waits = Prepared("sink", number, timeout_ms, 4_500, hold=True)
    return transaction(Status.ONGOING, epoch, prepared=waits)


def begin(
    txn: Transaction | None,
    environment: Environment,
    producer: tuple[int, int] = (-1, -1),
    *,
    timeout_ms: int = 60_000,
    limits: Limits | None = None,
    ephemeral: bool = False,
    **request: bool,
) -> Decision:
    """Return the decision about InitProducerId; producer: the id and epoch that it sends."""
    asked = Initialisation("id", timeout_ms, *producer, **request)
    return init_producer_id(txn, asked, limits or Limits(), environment.inputs(ephemeral=ephemeral))


def add(
    txn: Transaction,
    environment: Environment,
    partitions: dict[tuple[str, int], int] | None = None,
    *,
    epoch: int = EPOCH,
    version: int = 2,
) -> Decision:
    return machine.add_partitions(txn, PRODUCER, epoch, partitions or NEW, version, environment.inputs())


def end(
    txn: Transaction | None,
    commit: bool,
    environment: Environment,
    *,
    producer: int = PRODUCER,
    epoch: int = EPOCH,
    version: int = 2,
    ephemeral: bool = False,
) -> Decision:
    return machine.end(txn, commit, producer, epoch, version, environment.inputs(ephemeral=ephemeral))


def pair(decision: Decision) -> tuple[int, int]:
    """Return the producer id and epoch that the producer is given to continue with."""
    return decision.producer_id, decision.producer_epoch


def in_state(name: str, *, version: int = 2) -> Transaction | None:
    """Return the state of an id that this column of the table is about; None for an unknown id."""
    if name == "UNKNOWN":
        return None
    made = {"PREPARED": prepared, "HELD": held}.get(name)
    return made() if made else transaction(Status[name], version=version)


def summary(decision: Decision) -> str:
    """Return a decision as text: the error, or the state it leads to and the markers: "90", "0", "CompleteAbort@6
    abort@6".
    """
    words = [] if not decision.error and decision.states else [str(int(decision.error))]
    if decision.states:
        last = decision.states[-1]
        name = ("Held" if last.prepared.hold else "Prepared") if last.prepared else last.status.text
        words.append(
            f"{name}@{last.producer_epoch}" + ("" if last.producer_id == PRODUCER else f" of {last.producer_id}")
        )
    if decision.marker:
        words.append(f"{'commit' if decision.marker.commit else 'abort'}@{decision.marker.producer_epoch}")
    if decision.gone:
        words.append("gone")
    return " ".join(words)
