"""Story: which events the changes of a transactional id's status give."""

import pytest
from fencepost.client.admin.values import TransactionDescription, TransactionListing
from fencepost.client.values import TopicPartition
from fencepost.console.model.story import RECENT, Story
from fencepost.console.model.transaction_records import Status

A, B = TopicPartition("orders", 0), TopicPartition("payments", 1)


def status(state: str, *partitions: TopicPartition, producer: int = 7, epoch: int | None = 0) -> Status:
    return Status(state, producer, epoch, frozenset(partitions))


def reported(*statuses: Status | None) -> list[str]:
    story = Story()
    return [each["type"] for one in statuses for each in story.follow("t", one, 5)]


@pytest.mark.parametrize(
    ("statuses", "kinds"),
    [
        ([status("Empty")], []),
        ([status("Empty"), status("Ongoing", A)], ["txn.begin"]),
        ([status("Ongoing", A), status("Ongoing", A, B)], ["txn.begin", "txn.partition_added"]),
        (
            [status("Ongoing", A), status("PrepareCommit", A), status("CompleteCommit")],
            ["txn.begin", "txn.prepare_commit", "txn.commit"],
        ),
        ([status("CompleteCommit"), status("Ongoing", A), status("Ongoing", A)], ["txn.commit", "txn.begin"]),
        ([status("CompleteCommit"), status("CompleteCommit")], ["txn.commit"]),
        ([status("CompleteCommit", epoch=0), status("CompleteCommit", epoch=1)], ["txn.commit", "txn.commit"]),
        (
            [status("Ongoing", A), status("PrepareAbort", A), status("CompleteAbort")],
            ["txn.begin", "txn.prepare_abort", "txn.abort"],
        ),
        ([status("Empty", epoch=3), status("Empty", epoch=4)], ["txn.fence"]),
        ([status("Empty", producer=1), status("Empty", producer=2)], ["txn.fence"]),
        ([status("Empty", epoch=3), status("Empty", epoch=None)], []),
        ([status("Ongoing", A, epoch=0), status("Ongoing", B, epoch=1)], ["txn.begin", "txn.begin"]),
        ([status("Empty"), None], ["txn.expire"]),
        ([None], []),
    ],
)
def test_each_transaction_status_change_is_one_event(statuses: list, kinds: list[str]) -> None:
    assert reported(*statuses) == kinds


def lists(*states: tuple[str, str]) -> tuple[dict, dict]:
    listed = {name: TransactionListing(name, 7, state, 1) for name, state in states}
    open_now = [name for name, state in states if state == "Ongoing"]
    described = {name: TransactionDescription(name, "Ongoing", 7, 0, 60_000, 1, 1, (A,)) for name in open_now}
    return listed, described


def test_compare_returns_an_event_per_transaction_changed_since_the_last_comparison() -> None:
    story = Story()
    story.begin(*lists(("old", "CompleteCommit")))
    assert story.compare(*lists(("old", "CompleteCommit")), 1) == []
    (event,) = story.compare(*lists(("old", "CompleteCommit"), ("new", "Ongoing")), 2)
    assert event == {
        "type": "txn.begin",
        "transactional_id": "new",
        "producer_id": 7,
        "producer_epoch": 0,
        "state": "Ongoing",
        "partitions": [{"topic_name": "orders", "partition_id": 0}],
        "at_ms": 2,
    }
    kinds = [each["type"] for each in story.compare(*lists(("new", "CompleteAbort")), 3)]
    assert kinds == ["txn.abort", "txn.expire"]
    first = Story()
    first.begin({}, {})
    assert [each["type"] for each in first.compare(*lists(("new", "Ongoing")), 1)] == ["txn.begin"]


def test_a_listing_without_an_epoch_in_the_known_state_gives_no_event() -> None:
    """ListTransactions returns no epoch; the records of `__transaction_state` have it."""
    story = Story()
    story.follow("t", status("CompleteCommit", epoch=4), 1)
    assert story.compare(*lists(("t", "CompleteCommit")), 2) == []


def test_story_recent_lists_only_the_last_events_and_the_newest_first() -> None:
    story = Story()
    for number in range(2 * RECENT):
        story.follow(f"t{number}", status("Ongoing", A), number)
    assert [each["at_ms"] for each in story.recent] == list(range(2 * RECENT - 1, RECENT - 1, -1))


def test_a_partition_added_to_a_transaction_is_published_as_an_event() -> None:
    story = Story()
    story.follow("t", status("Ongoing", B), 5)
    (added,) = story.follow("t", status("Ongoing", A, B), 6)
    assert added["type"] == "txn.partition_added"
    assert added["added"] == [{"topic_name": "orders", "partition_id": 0}]
