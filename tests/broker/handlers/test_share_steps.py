"""Requests with the greatest number of ranges: none takes a long turn of the event loop, and a request notices what
others have changed between its steps.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import share_work
from fencepost.broker.net import turns
from fencepost.broker.requests.share.session_ends import end_session
from fencepost.broker.share.acknowledging import Acknowledging
from fencepost.broker.share.values import AckRange, AcquiredRange, SharePartitionKey
from fencepost.protocol.errors import ErrorCode
from produce_requests import create
from share_acknowledging import acknowledge_now
from share_client import ACCEPT, REJECT, RELEASE, ShareClient
from simulated_broker import SimulatedBroker
from work_of_requests import frame_of, work_of

pytestmark = pytest.mark.slow

TURN_LINES = 20_000
RANGES = share_work.RANGES
NOT_ACQUIRED = ErrorCode.INVALID_RECORD_STATE


class World:
    """A broker with a topic, and a member of a share group that has all of its records."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self.broker = broker
        broker.ask(create("wide"))
        self.member = share_work.member_with_many_records(self)
        self.place = self.member.topic_id, 0

    @property
    def shares(self) -> Any:
        return self.broker.broker.share_partitions

    def states(self) -> dict[str, int]:
        """Return how many records are in each state: A available, L acquired, K acknowledged, X archived, P pending."""
        found = ShareClient(self.broker, "wide", group=share_work.GROUP).states()
        return {letter: found.count(letter) for letter in sorted(set(found))}

    def acknowledge(self, *acks: AckRange, member: str = "m") -> None:
        assert acknowledge_now(self.shares, share_work.GROUP, member, {self.place: acks}) == {self.place: None}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(turns, "ARRIVAL_UNITS", 400)
    monkeypatch.setattr(turns, "SLICE_UNITS", 100)
    with SimulatedBroker() as broker:
        yield World(broker)


def plain(world: World) -> Any:
    """Return a ShareAcknowledge of all records, each in a range of its own."""
    return world.member.acknowledging(share_work.many_acks(ACCEPT, REJECT))


def in_transaction(world: World) -> Any:
    """Return a TxnShareAcknowledge of all records, each in a range of its own."""
    return share_work.in_transaction(world, world.member, share_work.many_acks(ACCEPT, REJECT))


@pytest.mark.parametrize(
    ("asking", "after"),
    [
        # The first record is acknowledged, so the window begins after it.
        (share_work.acknowledging, {"A": 3_333, "K": 3_333, "X": 3_333}),
        (share_work.fetching, {"A": 3_334, "K": 3_333, "L": 3_333}),
        (in_transaction, {"P": RANGES}),
    ],
)
def test_acknowledging_many_ranges_keeps_each_loop_turn_within_its_line_limit(
    world: World, asking: Any, after: dict[str, int]
) -> None:
    request = asking(world if asking is in_transaction else world.member)
    work = work_of(world.broker, [frame_of(request)])
    assert work.most_lines <= TURN_LINES
    assert world.states() == after


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Return a function that sets what happens between two steps of a long request."""

    def happens(act: Callable[[], object]) -> None:
        decide_ahead = Acknowledging.decide_ahead

        def interrupted(self: Acknowledging) -> Any:
            for number, units in enumerate(decide_ahead(self)):
                if number == RANGES // 200:
                    act()
                yield units

        monkeypatch.setattr(Acknowledging, "decide_ahead", interrupted)

    return happens


def code_of(answer: Any) -> int:
    topics = answer.topics if hasattr(answer, "topics") else answer.responses
    return int(answer.error_code) or next(part.error_code for topic in topics for part in topic.partitions)


@pytest.mark.parametrize("long", [plain, in_transaction])
@pytest.mark.parametrize("offset", [0, 3_000, RANGES - 1])
def test_a_request_is_refused_whole_if_one_of_its_records_is_released_between_steps(
    world: World, meanwhile: Any, long: Any, offset: int
) -> None:
    meanwhile(lambda: world.acknowledge(AckRange(offset, offset, [RELEASE])))
    assert code_of(world.broker.ask(long(world))) == NOT_ACQUIRED
    assert world.states() == {"A": 1, "L": RANGES - 1}, "the refused request has changed nothing"
    assert world.broker.broker.transactions.open == {}


def test_a_request_is_refused_whole_if_one_of_its_records_becomes_pending(world: World, meanwhile: Any) -> None:
    """Between two steps of the request, another transaction acknowledges the record."""
    asked = share_work.in_transaction(world, world.member, {0: [(3_000, 3_000, ACCEPT)]}, "other")

    def become_pending() -> None:
        acks = {world.place: [AckRange(3_000, 3_000, [ACCEPT])]}
        made = world.shares.begin_acknowledging_in_transaction(share_work.GROUP, "m", asked.producer_id, acks)
        changes, wrong = made.finish_in_transaction()
        assert not wrong
        unit = world.shares.state_log.pending_unit(changes, asked.producer_id, asked.producer_epoch)
        world.shares.state_log.topic.commit(unit.parts)
        unit.apply()

    meanwhile(become_pending)
    assert code_of(world.broker.ask(plain(world))) == NOT_ACQUIRED
    assert world.states() == {"L": RANGES - 1, "P": 1}


@pytest.mark.parametrize("long", [plain, in_transaction])
def test_a_request_is_refused_whole_if_its_share_session_ends_between_its_steps(
    world: World, meanwhile: Any, long: Any
) -> None:
    sessions = world.broker.broker.share_sessions
    meanwhile(lambda: list(end_session(world.broker.broker, sessions.find(share_work.GROUP, "m"))))
    # An acknowledgement in a transaction names no session, but its records are not acquired any more.
    expected = ErrorCode.SHARE_SESSION_NOT_FOUND if long is plain else NOT_ACQUIRED
    assert code_of(world.broker.ask(long(world))) == expected
    assert world.states() == {"A": RANGES}


def test_a_request_is_refused_if_its_session_epoch_grows_between_its_steps(world: World, meanwhile: Any) -> None:
    sessions = world.broker.broker.share_sessions
    meanwhile(lambda: sessions.go_on(share_work.GROUP, "m", world.member.epoch))
    assert code_of(world.broker.ask(plain(world))) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert world.states() == {"L": RANGES}


@pytest.mark.parametrize("long", [plain, in_transaction])
def test_acknowledgements_of_another_member_between_steps_change_no_result(
    world: World, meanwhile: Any, long: Any
) -> None:
    """The other member rejects three of its own records, whose offsets lie between those of the long request. It keeps
    ten others, whose offsets are higher.
    """
    key = SharePartitionKey(share_work.GROUP, *world.place)
    machine = world.shares.state_log.known[key].machine
    theirs = [AcquiredRange(offset, offset, 1) for offset in (2_000, 3_000, 7_000)]
    machine.acquire([*theirs, AcquiredRange(RANGES, RANGES + 9, 1)], "other", 1 << 60)
    meanwhile(lambda: world.acknowledge(*(AckRange(*each[:2], [REJECT]) for each in theirs), member="other"))
    request = long(world)
    for topic in request.topics:
        for part in topic.partitions:
            batches = part.acknowledgement_batches
            part.acknowledgement_batches = [
                each for each in batches if not any(each.first_offset == there.first for there in theirs)
            ]
    assert code_of(world.broker.ask(request)) == 0
    after = {"L": 10} if long is plain else {"L": 10, "P": RANGES - 3, "X": 3}
    assert world.states() == after
    with world.broker.after_power_cut() as later:
        world.broker = later
        assert world.states() == {letter: count for letter, count in after.items() if letter != "L"}
