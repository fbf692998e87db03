"""Every state × every event: what a group answers, what it does, and what the table says, pair by pair."""

from collections.abc import Callable

import pytest
from fencepost.broker.groups.members import Leaving
from fencepost.broker.groups.states import MAY_FOLLOW, TABLE, Event, State, Step
from fencepost.protocol.errors import ErrorCode
from group_driver import REBALANCE_MS, GroupDriver

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
OTHER = (("range", b"changed"),)


def group_in(state: State, *, static: bool = False) -> GroupDriver:
    """Return a group in this state, with the members m1 (the leader; static: instance i0) and m2 as far as that state
    has members.
    """
    driver = GroupDriver()
    if state is EMPTY:
        ids = driver.stable(static=static)
        driver.leave(*ids)
    elif state is DEAD:
        driver.group.delete()
    else:
        ids = driver.stable(2, static=static)
        if state is not STABLE:
            driver.join(ids[0], "i0" if static else None)
        if state is COMPLETING:
            driver.join(ids[1], "i1" if static else None)
    assert driver.group.state is state
    return driver


def second(driver: GroupDriver) -> str:
    """Return the member that is not the leader, or m2 if there is none; m2 then is not in the group."""
    return next((each for each in driver.group.members if each != driver.group.leader), "m2")


def leader(driver: GroupDriver) -> str:
    return driver.group.leader or "m1"


# Each event: how it is made to happen, and for each state the error it answers with (None: not answered yet) and the
# state that follows. "Nobody in particular" is a client without a member id; GONE is the error of a deleted group.
Row = tuple[Callable[[GroupDriver], ErrorCode | None], tuple[tuple[ErrorCode | None, State], ...]]

ROWS: dict[str, Row] = {
    "somebody joins": (
        lambda d: d.join(must_know_id=False).error,
        ((None, PREPARING), (None, PREPARING), (None, PREPARING), (None, PREPARING), (GONE, DEAD)),
    ),
    "somebody joins for the first time": (
        lambda d: d.join().error,
        (
            (ErrorCode.MEMBER_ID_REQUIRED, EMPTY),
            (ErrorCode.MEMBER_ID_REQUIRED, PREPARING),
            (ErrorCode.MEMBER_ID_REQUIRED, COMPLETING),
            (ErrorCode.MEMBER_ID_REQUIRED, STABLE),
            (GONE, DEAD),
        ),
    ),
    "a follower joins again": (
        lambda d: d.join(second(d)).error,
        ((UNKNOWN, EMPTY), (NONE, COMPLETING), (NONE, COMPLETING), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a follower joins again, changed": (
        lambda d: d.join(second(d), protocols=OTHER).error,
        ((UNKNOWN, EMPTY), (NONE, COMPLETING), (None, PREPARING), (None, PREPARING), (GONE, DEAD)),
    ),
    "the leader joins again": (
        lambda d: d.join(leader(d)).error,
        ((UNKNOWN, EMPTY), (None, PREPARING), (NONE, COMPLETING), (None, PREPARING), (GONE, DEAD)),
    ),
    "the leader asks for its assignment": (
        lambda d: d.sync(leader(d), {}).error,
        ((UNKNOWN, EMPTY), (REBALANCING, PREPARING), (NONE, STABLE), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a follower asks for its assignment": (
        lambda d: d.sync(second(d)).error,
        ((UNKNOWN, EMPTY), (REBALANCING, PREPARING), (None, COMPLETING), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a member asks for that of another generation": (
        lambda d: d.sync(second(d), generation=7).error,
        (
            (UNKNOWN, EMPTY),
            (ErrorCode.ILLEGAL_GENERATION, PREPARING),
            (ErrorCode.ILLEGAL_GENERATION, COMPLETING),
            (ErrorCode.ILLEGAL_GENERATION, STABLE),
            (GONE, DEAD),
        ),
    ),
    "a member asks for that of an earlier generation": (
        lambda d: d.sync(second(d), generation=0).error,
        (
            (UNKNOWN, EMPTY),
            (ErrorCode.ILLEGAL_GENERATION, PREPARING),
            (ErrorCode.ILLEGAL_GENERATION, COMPLETING),
            (ErrorCode.ILLEGAL_GENERATION, STABLE),
            (GONE, DEAD),
        ),
    ),
    "a member names another protocol": (
        lambda d: d.sync(second(d), protocol="sticky").error,
        (
            (UNKNOWN, EMPTY),
            (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, PREPARING),
            (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, COMPLETING),
            (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, STABLE),
            (GONE, DEAD),
        ),
    ),
    "a member is alive": (
        lambda d: d.heartbeat(second(d)),
        ((UNKNOWN, EMPTY), (REBALANCING, PREPARING), (NONE, COMPLETING), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a member of another generation is alive": (
        lambda d: d.heartbeat(second(d), 7),
        (
            (UNKNOWN, EMPTY),
            (ErrorCode.ILLEGAL_GENERATION, PREPARING),
            (ErrorCode.ILLEGAL_GENERATION, COMPLETING),
            (ErrorCode.ILLEGAL_GENERATION, STABLE),
            (GONE, DEAD),
        ),
    ),
    "a member commits": (
        lambda d: d.commit(second(d)),
        ((UNKNOWN, EMPTY), (NONE, PREPARING), (REBALANCING, COMPLETING), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a member commits in a transaction": (
        lambda d: d.commit(second(d), transactional=True),
        ((UNKNOWN, EMPTY), (NONE, PREPARING), (NONE, COMPLETING), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a member of another generation commits": (
        lambda d: d.commit(second(d), 7),
        (
            (UNKNOWN, EMPTY),
            (ErrorCode.ILLEGAL_GENERATION, PREPARING),
            (ErrorCode.ILLEGAL_GENERATION, COMPLETING),
            (ErrorCode.ILLEGAL_GENERATION, STABLE),
            (GONE, DEAD),
        ),
    ),
    "nobody in particular commits": (
        lambda d: d.commit("", -1),
        ((NONE, EMPTY), (UNKNOWN, PREPARING), (UNKNOWN, COMPLETING), (UNKNOWN, STABLE), (GONE, DEAD)),
    ),
    "nobody in particular commits in a transaction": (
        lambda d: d.commit("", -1, transactional=True),
        ((NONE, EMPTY), (NONE, PREPARING), (NONE, COMPLETING), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a follower leaves": (
        lambda d: d.leave(second(d))[0],
        ((UNKNOWN, EMPTY), (NONE, COMPLETING), (NONE, PREPARING), (NONE, PREPARING), (UNKNOWN, DEAD)),
    ),
    "a newcomer that was told its id leaves": (
        lambda d: d.leave(d.join().got.member_id)[0],
        ((NONE, EMPTY), (NONE, PREPARING), (NONE, COMPLETING), (NONE, STABLE), (UNKNOWN, DEAD)),
    ),
    "the group is deleted": (
        lambda d: d.group.delete(),
        (
            (NONE, DEAD),
            (ErrorCode.NON_EMPTY_GROUP, PREPARING),
            (ErrorCode.NON_EMPTY_GROUP, COMPLETING),
            (ErrorCode.NON_EMPTY_GROUP, STABLE),
            (ErrorCode.GROUP_ID_NOT_FOUND, DEAD),
        ),
    ),
}

STATIC_ROWS: dict[str, Row] = {
    "a static leader is back, unchanged": (
        lambda d: d.join("", "i0").error,
        ((None, PREPARING), (None, PREPARING), (None, PREPARING), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a static follower is back, unchanged": (
        lambda d: d.join("", "i1").error,
        ((None, PREPARING), (NONE, COMPLETING), (None, PREPARING), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a static follower is back with another subscription": (
        lambda d: d.join("", "i1", protocols=OTHER).error,
        ((None, PREPARING), (NONE, COMPLETING), (None, PREPARING), (NONE, STABLE), (GONE, DEAD)),
    ),
    "a static follower joins again, changed": (
        lambda d: d.join(second(d), "i1", protocols=OTHER).error,
        ((UNKNOWN, EMPTY), (NONE, COMPLETING), (None, PREPARING), (None, PREPARING), (GONE, DEAD)),
    ),
    "a static member is removed by its instance": (
        lambda d: d.leave(Leaving("", "i1"))[0],
        ((UNKNOWN, EMPTY), (NONE, COMPLETING), (NONE, PREPARING), (NONE, PREPARING), (UNKNOWN, DEAD)),
    ),
    "somebody speaks for the instance of another": (
        lambda d: d.heartbeat("m99", instance_id="i1"),
        (
            (UNKNOWN, EMPTY),
            (ErrorCode.FENCED_INSTANCE_ID, PREPARING),
            (ErrorCode.FENCED_INSTANCE_ID, COMPLETING),
            (ErrorCode.FENCED_INSTANCE_ID, STABLE),
            (GONE, DEAD),
        ),
    ),
}

CASES = [
    pytest.param(state, happens, answers[state], static, id=f"{state.shown}: {name}")
    for rows, static in ((ROWS, False), (STATIC_ROWS, True))
    for name, (happens, answers) in rows.items()
    for state in State
]


@pytest.mark.parametrize(("state", "happens", "expected", "static"), CASES)
def test_every_event_in_every_group_state_has_one_answer(
    state: State,
    happens: Callable[[GroupDriver], ErrorCode | None],
    expected: tuple[ErrorCode | None, State],
    static: bool,
) -> None:
    driver = group_in(state, static=static)
    assert (happens(driver), driver.group.state) == expected


def test_the_table_of_group_states_covers_every_state_and_event() -> None:
    assert set(TABLE) == set(Event)
    assert all(len(row) == len(State) for row in TABLE.values())
    assert {step for row in TABLE.values() for step in row if isinstance(step, Step)} == set(Step)
    assert set(MAY_FOLLOW) == set(State)


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (PREPARING, COMPLETING),  # the members that have not joined again are removed
        (COMPLETING, EMPTY),  # no member has sent SyncGroup, so all are removed
        (STABLE, STABLE),
        (EMPTY, EMPTY),
        (DEAD, DEAD),
    ],
)
def test_only_a_group_that_prepares_or_completes_a_rebalance_changes_by_a_timeout(state: State, after: State) -> None:
    driver = group_in(state)

    def wait_with_heartbeats(seconds: int) -> None:  # so that no member's session ends
        for _ in range(seconds):
            for member_id in list(driver.group.members):
                driver.heartbeat(member_id)
            driver.wait(1_000)

    wait_with_heartbeats(1)
    assert driver.group.state is state
    wait_with_heartbeats(REBALANCE_MS // 1_000 + 1)
    assert driver.group.state is after


@pytest.mark.parametrize("state", State)
def test_a_group_changes_state_only_as_its_table_allows(state: State) -> None:
    driver = group_in(state)
    for other in set(State) - MAY_FOLLOW[state]:
        with pytest.raises(AssertionError):
            driver.group._become(other)
