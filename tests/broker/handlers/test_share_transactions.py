"""TxnShareAcknowledge through a whole broker: which records are pending, until when, and what is refused until then.

states() gives the window's first offset, and a letter for each of its records: A available, L acquired (locked), K
acknowledged, X archived, P pending.
"""

from collections.abc import Callable, Iterator

import pytest
from fencepost.broker.config.settings import BrokerSettings
from fencepost.broker.handlers import share_transactions as handler
from fencepost.broker.share import pending
from fencepost.broker.share.values import AckRange, AckType, AcquiredRange, SharePartitionKey
from fencepost.protocol.errors import ErrorCode, KafkaError
from fencepost.protocol.messages.ledger import EndTxnsRequest, PrepareTxnRequest
from fencepost.protocol.messages.transactions import EndTxnRequest
from offset_requests import Producer
from share_acknowledging import acknowledge_now
from share_transactions import ShareWorker, acquire, begin, states
from simulated_broker import SimulatedBroker

NONE = ErrorCode.NONE
PARTITIONS = 75
NOT_ACQUIRED, NOT_TRIED = ErrorCode.INVALID_RECORD_STATE, ErrorCode.OPERATION_NOT_ATTEMPTED


@pytest.fixture
def world() -> Iterator[SimulatedBroker]:
    settings = BrokerSettings(share_coordinator_state_topic_num_partitions=3)
    with SimulatedBroker(settings) as made:
        made.broker.topics.create("orders", 4)
        made.broker.topics.create("invoices", 1)
        yield made


@pytest.mark.requirement("S-131")
def test_records_accepted_in_a_transaction_are_done_when_it_commits(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 4)
    worker.write("invoices")
    assert worker.acknowledge((key, 0, 1), (key, 4, 4)) == [NONE]
    assert states(world, key) == "0 PPLLP"
    unit = world.broker.store.last_unit
    worker.end(commit=True)
    assert world.broker.store.last_unit == unit + 1, "outputs and acknowledgements are committed in one unit"
    assert states(world, key) == "2 LLK"


def test_records_acknowledged_in_an_aborted_transaction_are_delivered_again(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 2)
    assert worker.acknowledge((key, 0, 2)) == [NONE]
    worker.end(commit=False)
    assert states(world, key) == "0 AAA"
    assert acquire(world, key, 0, 2, "other") == [AcquiredRange(0, 2, 2)]


def test_acknowledgements_that_exceed_the_entry_of_the_txns_end_are_refused(
    world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction's end settles all its acknowledged ranges in one journal entry, which has room for three of them
    here. A request that would exceed it is refused whole; a smaller one is accepted after it.
    """
    (key,) = begin(world, "orders")
    room = int(handler.PART_OF_UNIT * world.broker.store.largest_append_bytes)
    monkeypatch.setattr(pending, "RANGE_BYTES", (room - pending.UPDATE_BYTES - len(key.group)) // 3)
    worker = ShareWorker(world)
    acquire(world, key, 0, 9)
    assert worker.acknowledge((key, 0, 0), (key, 2, 2)) == [NONE]
    assert worker.acknowledge((key, 4, 4), (key, 6, 6)) == [ErrorCode.POLICY_VIOLATION]
    assert worker.acknowledge((key, 4, 4)) == [NONE]
    worker.end(commit=True)
    assert states(world, key) == "1 LKLKLLLLL"  # from offset 1 on: K acknowledged, L acquired


def test_a_prepare_is_refused_if_one_decision_could_not_end_all_under_its_ledger_key(
    world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unit ends all transactions under a ledger key. It has room for three ranges; each transaction has two."""
    (key,) = begin(world, "orders")
    room = int(handler.PART_OF_UNIT * world.broker.store.largest_append_bytes)
    monkeypatch.setattr(pending, "RANGE_BYTES", (room - pending.UPDATE_BYTES - len(key.group)) // 3)
    workers = [ShareWorker(world, f"x{number}", member=f"m{number}") for number in range(2)]
    for number, worker in enumerate(workers):
        first = 5 * number
        acquire(world, key, first, first + 4, worker.member)
        assert worker.acknowledge((key, first, first), (key, first + 2, first + 2)) == [NONE]

    def prepare(worker: ShareWorker, ledger_key: str) -> int:
        who = worker.producer.who
        return world.ask(
            PrepareTxnRequest(**who, ledger_key=ledger_key, number=1, prepared_timeout_ms=9_000)
        ).error_code

    assert prepare(workers[0], "sink") == NONE
    assert prepare(workers[0], "sink") == NONE, "a repeated prepare succeeds"
    assert prepare(workers[1], "sink") == ErrorCode.POLICY_VIOLATION
    assert prepare(workers[1], "other sink") == NONE


def test_a_prepare_after_its_decision_is_aborted_however_much_is_pending(
    world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 4)
    assert worker.acknowledge((key, 0, 0)) == [NONE]
    decided = EndTxnsRequest(ledger_key="sink", number=1, owner="driver", digest=b"d", committed=True, transactions=[])
    assert world.ask(decided).error_code == NONE
    monkeypatch.setattr(handler, "PART_OF_UNIT", 0)  # any pending acknowledgement is too much for one unit
    asked = {**worker.producer.who, "ledger_key": "sink", "number": 1, "prepared_timeout_ms": 9_000}
    assert world.ask(PrepareTxnRequest(**asked)).error_code == ErrorCode.LEDGER_CONFLICT
    assert states(world, key) == "0 ALLLL"  # the abort gave the acknowledged record back


@pytest.mark.slow
def test_acknowledgements_are_refused_before_long_group_names_fill_the_aborts_entry() -> None:
    """In the journal entry of the abort every share partition has a record of its own with the group's name, of 30 KB
    here. All of them together would be larger than an entry may be.
    """
    settings = BrokerSettings(
        share_coordinator_state_topic_num_partitions=1, group_share_delivery_count_limit=2, journal_max_bytes=4 << 20
    )
    with SimulatedBroker(settings) as world:
        world.broker.topics.create("orders", PARTITIONS)
        for known in range(1, PARTITIONS + 1):
            keys = begin(
                world, "orders", "g" * 30_000, known
            )  # in a journal entry for each: one for all would be too large
            world.wait(0.1)
        for key in keys:
            world.broker.share_partitions.state_log.known[key].machine.acquire([AcquiredRange(0, 0, 2)], "m", 1 << 60)
        worker = ShareWorker(world)
        answers = []
        for key in keys:
            answers.append(worker.acknowledge((key, 0, 0)))
            world.wait(0.1)
        assert answers[0] == [NONE]
        assert answers[-1] == [ErrorCode.POLICY_VIOLATION]
        ended = EndTxnRequest(**worker.producer.who, committed=False)
        for _ in range(5):
            if world.ask(ended, 5).error_code == NONE:
                break
            world.wait(1)  # a file of the journal with room for it is made ready
        done = [key for key, answer in zip(keys, answers, strict=True) if answer == [NONE]]
        assert [states(world, key) for key in done] == ["1"] * len(done)  # archived: it was the last delivery


def test_a_transaction_can_end_after_its_records_and_then_its_group_were_deleted(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 2)
    assert worker.acknowledge((key, 0, 2)) == [NONE]
    shares = world.broker.share_partitions
    shares.state_log.commit([(key, shares.state_log.known[key].machine.decide_start(5))])
    unit = shares.delete(key.group)
    shares.state_log.topic.commit(unit.parts)
    unit.apply()
    worker.end(commit=False)
    assert (shares.state_log.known, shares.state_log.pending.bytes_of(worker.producer.producer_id)) == ({}, 0)


def test_records_rejected_in_a_transaction_are_archived_at_commit(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 2)
    assert worker.acknowledge((key, 1, 1), kind=AckType.REJECT) == [NONE]
    worker.end(commit=True)
    assert states(world, key) == "0 LXL"


@pytest.mark.requirement("S-128")
def test_a_transactional_acknowledgement_and_its_begin_are_written_in_one_unit(world: SimulatedBroker) -> None:
    keys = begin(world, "orders", partitions=4)
    worker = ShareWorker(world)
    for key in keys:
        acquire(world, key, 0, 2)
    unit = world.broker.store.last_unit
    assert worker.acknowledge(*((key, 0, 2) for key in keys)) == [NONE] * 4
    assert world.broker.store.last_unit == unit + 1
    worker.end(commit=True)
    assert [states(world, key) for key in keys] == ["3"] * 4


def test_one_invalid_transactional_acknowledgement_refuses_the_whole_request(world: SimulatedBroker) -> None:
    keys = begin(world, "orders", partitions=3)
    worker = ShareWorker(world)
    for key in keys:
        acquire(world, key, 0, 2)
    answer = worker.acknowledge((keys[0], 0, 2), (keys[1], 2, 3), (keys[2], 0, 0))
    assert answer == [NOT_TRIED, ErrorCode.INVALID_REQUEST, NOT_TRIED]
    assert [states(world, key) for key in keys] == ["0 LLL"] * 3
    assert world.broker.transactions.open == {}


@pytest.mark.requirement("S-130")
def test_a_record_cannot_be_acknowledged_twice_even_in_the_same_transaction(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker, other = ShareWorker(world), ShareWorker(world, "y")
    acquire(world, key, 0, 2)
    assert worker.acknowledge((key, 0, 0)) == [NONE]
    assert worker.acknowledge((key, 0, 0)) == [NOT_ACQUIRED]
    assert other.acknowledge((key, 0, 0)) == [NOT_ACQUIRED]
    plain = acknowledge_now(world.broker.share_partitions, "g", "m", {(key.topic_id, 0): [AckRange(0, 0, [1])]})
    assert [error and error.code for error in plain.values()] == [NOT_ACQUIRED]
    worker.end(commit=False)
    acquire(world, key, 0, 0)
    assert other.acknowledge((key, 0, 0)) == [NONE], "after the abort it can be acknowledged again"


@pytest.mark.requirement("S-129")
def test_pending_acknowledgements_survive_lock_expiry_session_end_and_restart(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 1)
    assert worker.acknowledge((key, 0, 0)) == [NONE]
    world.broker.share_partitions.begin_release("g", "m", [(key.topic_id, 0)])
    world.wait(60)
    assert states(world, key) == "0 PA"
    with world.after_power_cut() as later:
        assert states(later, key) == "0 PA"
        worker.world = worker.producer.asked = later
        worker.end(commit=True)
        assert states(later, key) == "1 A"


@pytest.mark.slow
@pytest.mark.requirement("S-132")
@pytest.mark.parametrize("how", ["timeout", "fencing"])
def test_a_timeout_or_a_new_init_of_the_transaction_frees_its_pending_records(how: str, world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 1)
    assert worker.acknowledge((key, 0, 1)) == [NONE]
    if how == "timeout":
        world.wait(700)  # longer than the transaction's timeout, 600 s
    else:
        Producer(world, "x", tv=2)
    assert states(world, key) == "0 AA"
    assert worker.acknowledge((key, 0, 1)) == [ErrorCode.PRODUCER_FENCED]


def test_an_abort_archives_records_at_their_delivery_limit(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 1, 1)
    for _ in range(5):
        acquire(world, key, 0, 0)
        assert worker.acknowledge((key, 0, 0)) == [NONE]
        worker.end(commit=False)
    assert states(world, key) == "1 L"
    with world.after_power_cut() as later:
        assert states(later, key) == "1"


def test_a_commit_acknowledges_records_at_their_delivery_limit(world: SimulatedBroker) -> None:
    """It archives none of them, and logs nothing but its marker in __share_group_state."""
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 0, "other")
    log = world.broker.share_partitions.state_log.topic.log(world.broker.share_partitions.state_log.home(key))
    for delivery in range(1, 6):
        acquire(world, key, 1, 1)
        assert worker.acknowledge((key, 1, 1)) == [NONE]
        before = log.end_offset
        worker.end(commit=delivery == 5)
    assert states(world, key) == "0 LK"
    assert log.end_offset == before + 1
    with world.after_power_cut() as later:
        assert states(later, key) == "0 AK"


REFUSALS: dict[str, tuple[Callable[[ShareWorker, SharePartitionKey], list[int]], ErrorCode]] = {
    "another producer id": (
        lambda worker, key: worker.acknowledge((key, 0, 0), producer_id=999),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    "an unknown transactional id": (
        lambda worker, key: worker.acknowledge((key, 0, 0), transactional_id="nobody"),
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    "an older epoch": (
        lambda worker, key: worker.acknowledge((key, 0, 0), producer_epoch=worker.producer.epoch - 1),
        ErrorCode.PRODUCER_FENCED,
    ),
    "another member's record": (
        lambda worker, key: worker.acknowledge((key, 0, 0), member_id="other"),
        ErrorCode.INVALID_RECORD_STATE,
    ),
    "a record that was never acquired": (
        lambda worker, key: worker.acknowledge((key, 5, 5)),
        ErrorCode.INVALID_REQUEST,
    ),
    "a release": (
        lambda worker, key: worker.acknowledge((key, 0, 0), kind=AckType.RELEASE),
        ErrorCode.INVALID_REQUEST,
    ),
    "too many ranges": (
        lambda worker, key: worker.acknowledge(*[(key, 0, 0)] * 10_001),
        ErrorCode.INVALID_REQUEST,
    ),
    "an unknown share partition": (
        lambda worker, key: worker.acknowledge((key._replace(partition=3), 0, 0)),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    "an unknown topic": (
        lambda worker, key: worker.acknowledge((key._replace(topic_id=bytes(range(16))), 0, 0)),
        ErrorCode.UNKNOWN_TOPIC_ID,
    ),
    "another group": (
        lambda worker, key: worker.acknowledge((key, 0, 0), group_id="h"),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", REFUSALS)
def test_invalid_transactional_acknowledgements_are_refused_and_change_nothing(
    what: str, world: SimulatedBroker
) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 2)
    worker.end(commit=False)  # so that there is an older epoch
    unit = world.broker.store.last_unit
    ask, code = REFUSALS[what]
    assert ask(worker, key) == [code]
    assert (states(world, key), world.broker.store.last_unit) == ("0 LLL", unit)


def test_with_a_full_disk_transactional_acknowledgements_are_refused_and_open_no_txn(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 2)
    world.broker.store.space_exhausted = True
    assert worker.acknowledge((key, 0, 0)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert (states(world, key), world.broker.transactions.open) == ("0 LLL", {})


def test_transactions_of_protocol_tv1_cannot_acknowledge_share_records(world: SimulatedBroker) -> None:
    """Their epoch does not change, so a late acknowledgement would count in the next transaction."""
    (key,) = begin(world, "orders")
    worker = ShareWorker(world, tv=1)
    acquire(world, key, 0, 2)
    worker.producer.send_offsets("other", "invoices", {0: 1})
    assert worker.acknowledge((key, 0, 0)) == [ErrorCode.INVALID_TXN_STATE]
    worker.end(commit=True)
    assert worker.acknowledge((key, 0, 0)) == [NONE]  # opens a transaction of TV2
    for committed in (True, False):
        answer = world.ask(EndTxnRequest(**worker.producer.who, committed=committed), 4)
        assert answer.error_code == ErrorCode.INVALID_TXN_STATE
    assert states(world, key) == "0 PLL"
    worker.producer.tv = 2
    worker.end(commit=True)
    assert states(world, key) == "1 LL"


def test_pending_acknowledgements_block_offset_alteration_and_group_deletion(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker, shares = ShareWorker(world), world.broker.share_partitions
    acquire(world, key, 0, 2)
    assert worker.acknowledge((key, 0, 0)) == [NONE]
    place = key.topic_id, 0
    for refused in (
        lambda: shares.alter("g", {place: 5}),
        lambda: shares.delete("g", [place]),
        lambda: shares.delete("g"),
        lambda: shares.check_nothing_pending("g"),
    ):
        with pytest.raises(KafkaError) as error:
            refused()
        assert error.value.code is ErrorCode.NON_EMPTY_GROUP
        assert error.value.text == (
            f"acknowledgements of 1 open transaction are pending: producer id {worker.producer.producer_id}"
        )
    worker.end(commit=True)
    shares.check_nothing_pending("g")


def test_a_transaction_commits_although_the_acknowledged_topic_was_deleted(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 2)
    worker.write("invoices")
    assert worker.acknowledge((key, 0, 0)) == [NONE]
    world.broker.topics.delete(world.broker.topics.by_name["orders"])
    worker.end(commit=True)
    assert not world.broker.share_partitions.knows(key)


def test_a_commit_while_the_share_state_log_is_offline_applies_when_it_is_back(world: SimulatedBroker) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 2)
    assert worker.acknowledge((key, 0, 1)) == [NONE]
    home = world.broker.share_partitions.state_log.home(key)
    log = world.broker.topics.by_name["__share_group_state"].partitions[home].log
    log.offline = "a test"
    worker.end(commit=True)
    log.offline = None
    with world.after_power_cut() as later:
        assert states(later, key) == "2"


@pytest.mark.parametrize("committed", [True, False])
def test_acknowledgements_of_a_prepared_transaction_wait_for_the_decision(
    committed: bool, world: SimulatedBroker
) -> None:
    (key,) = begin(world, "orders")
    worker = ShareWorker(world)
    acquire(world, key, 0, 2)
    assert worker.acknowledge((key, 0, 0)) == [NONE]
    who = worker.producer.who
    prepared = PrepareTxnRequest(**who, ledger_key="sink", number=1, prepared_timeout_ms=60_000)
    assert world.ask(prepared).error_code == NONE
    assert worker.acknowledge((key, 1, 1)) == [ErrorCode.INVALID_TXN_STATE]
    item = EndTxnsRequest.Transaction(**who)
    decision = EndTxnsRequest(
        ledger_key="sink", number=1, owner="driver", digest=b"d", committed=committed, transactions=[item]
    )
    assert world.ask(decision).error_code == NONE
    assert states(world, key) == ("1 LL" if committed else "0 ALL")
