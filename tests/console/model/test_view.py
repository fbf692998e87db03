"""Views of a cluster: the rows of pages, what changed between two of them, and their bounds on a large cluster."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from fencepost.client.admin.values import (
    Blocker,
    ClusterDescription,
    GroupListing,
    OpenTransaction,
    PartitionDescription,
    PendingRange,
    PreparedTransaction,
    ProducerState,
    SharePartitionOffsets,
    ShareWindow,
    TopicDescription,
    TransactionDescription,
    TransactionListing,
)
from fencepost.client.values import TopicPartition
from fencepost.console.model.alarms import alarm_rows
from fencepost.console.model.changes import MAX_BLOCKERS, MAX_ITEMS, changes
from fencepost.console.model.view import (
    SHOWN_IN_LIST,
    Group,
    Offsets,
    View,
    blocker_rows,
    blocks_by_producer,
    counts_row,
    group_lag,
    open_rows,
    topic_offsets,
)

CLUSTER = ClusterDescription("c", 1, (), {})


def view(topics: int = 1, groups: Mapping[str, int] | None = None, *, ids: int = 1, held: bool = True) -> View:
    """Return a view of topics with one partition each, which has offsets 0 to 10. held: whether the last 4 of these are
    of an open transaction. groups: the committed offset of each group in the first partition.
    """
    names = [f"t{number}" for number in range(topics)]
    places = [TopicPartition(name, 0) for name in names]
    one = (PartitionDescription(0, 1, 0, (1,), (1,)),)
    described = {
        f"id{number}": TransactionDescription(
            f"id{number}", "Ongoing", number, 2, 1000, 500 + number, 1, (places[number % topics],)
        )
        for number in range(ids if held else 0)
    }
    blockers = []
    for number, at in enumerate(places if held else []):
        producer = ProducerState(number % ids, 2, 0, 600, 0, 6)
        blockers.append(Blocker(OpenTransaction(at, producer), 6, 10, described[f"id{number % ids}"]))
    return View(
        1_000,
        CLUSTER,
        {name: TopicDescription(name, b"", False, one) for name in names},
        {at: Offsets(0, 6 if held else 10, 10) for at in places},
        {name: TransactionListing(name, each.producer_id, each.state, 1) for name, each in described.items()},
        described,
        {},
        tuple(blockers),
        {
            name: Group(GroupListing(name, "Stable", "consumer", "classic"), None, dict.fromkeys(places[:1], offset))
            for name, offset in (groups or {}).items()
        },
    )


def large_view() -> View:
    """Return a view with 1,000 topics, all blocked, 500 groups and 10,000 open transactions, id0 the oldest."""
    return view(1_000, {f"g{number}": 6 for number in range(500)}, ids=10_000)


def test_a_group_counts_as_waiting_if_it_read_up_to_the_last_stable_offset() -> None:
    found = view(groups={"behind": 5, "there": 6, "beyond": 8})
    (row,) = blocker_rows(found, 10)
    waits = {each["consumer_group_id"]: (each["would_wait"], each["lag_to_stable"]) for each in row["groups"]}
    assert waits == {"behind": (False, 1), "there": (True, 0), "beyond": (True, 0)}
    assert blocks_by_producer(found) == {0: {"partitions": 1, "records": 4, "groups": 2}}
    assert (row["age_ms"], row["timeout_share"], row["waiting"], row["hangs"]) == (500, 0.5, 4, False)
    assert group_lag(found.groups["behind"], found) == {
        "to_stable": 1,
        "to_high_watermark": 5,
        "partitions": 1,
        "blocked_partitions": 1,
    }
    assert topic_offsets(found.topics["t0"], found) == {"retained": 10, "held": 4, "blocked_partitions": 1}


def test_a_full_share_window_counts_as_blocked_in_the_group_lag_and_gives_an_alarm() -> None:
    full = ShareWindow(100, 100, 60, (PendingRange(3, 62, "id0", 0, "m"),))
    at = [TopicPartition("t0", number) for number in range(3)]
    stands = [SharePartitionOffsets(3, 0, 40, full), SharePartitionOffsets(4, 0, 2), SharePartitionOffsets(0, 0, None)]
    listing = GroupListing("packing", "Stable", "share", "share")
    found = replace(view(), groups={"packing": Group(listing, None, {}, dict(zip(at, stands, strict=True)))})
    sums = {"to_stable": None, "to_high_watermark": 42, "partitions": 3, "blocked_partitions": 1}
    assert group_lag(found.groups["packing"], found) == sums
    (alarm,) = alarm_rows(found)
    assert (alarm["partitions"], alarm["pending"]) == ([{"topic_name": "t0", "partition_id": 0}], 60)
    assert (alarm["transactional_id"], alarm["state"], alarm["age_ms"], alarm["producer_epoch"]) == (
        "id0",
        "Ongoing",
        500,
        2,
    )


def test_blocks_by_producer_counts_only_blocked_groups_of_the_given_view() -> None:
    """A view that is made from another with replace() does not take over the counts that are stored in that one."""
    before = view(groups={"there": 6})
    assert blocks_by_producer(before)[0]["groups"] == 1
    assert blocks_by_producer(replace(before, groups={}))[0]["groups"] == 0


def test_a_blockers_sentence_names_its_transaction_and_the_decision_it_waits_for() -> None:
    found = view()
    assert blocker_rows(found, 1)[0]["sentence"] == (
        "t0-0 is held at offset 6, 4 before its end, by transaction id0 of producer 0 epoch 2, Ongoing"
    )
    prepared = replace(found, prepared={"id0": PreparedTransaction("id0", 0, 2, "orders", 17, None)})
    assert "waits for the decision of sink orders about batch 17" in blocker_rows(prepared, 1)[0]["sentence"]
    held = replace(found, prepared={"id0": PreparedTransaction("id0", 0, 2, "sql:db:id0", 17, None, held=True)})
    words = "decision 17 of database db, and nothing else ends it (held); to ask that: fencepost txn resolve --db URL"
    assert words in blocker_rows(held, 1)[0]["sentence"]
    unknown = replace(found, blockers=tuple(replace(each, description=None) for each in found.blockers))
    assert "that no coordinator will end" in blocker_rows(unknown, 1)[0]["sentence"]


def reported(before: View, after: View) -> dict[str, Any]:
    return dict(changes(before, after))


def test_a_view_in_which_only_ages_have_grown_sends_no_event() -> None:
    before = view(groups={"g": 1})
    assert reported(before, replace(before, at_ms=900_000)) == {}


def test_each_change_of_the_cluster_is_in_one_event_of_its_kind() -> None:
    free, held = view(held=False), view()
    found = reported(free, held)
    assert set(found) == {"counts", "transactions", "partitions", "blockers"}
    assert found["transactions"]["changed"][0]["transactional_id"] == "id0"
    assert found["partitions"] == {
        "changed": [
            {
                "topic_name": "t0",
                "partition_id": 0,
                "log_start_offset": 0,
                "last_stable_offset": 6,
                "high_watermark": 10,
            }
        ],
        "more": False,
    }
    assert found["blockers"]["complete"]
    ended = {"id0": TransactionListing("id0", 0, "CompleteCommit", 1)}
    found = reported(held, replace(free, listed=ended))
    assert [each["state"] for each in found["transactions"]["changed"]] == ["CompleteCommit"]
    assert found["blockers"] == {"rows": [], "complete": True}
    assert reported(held, free)["transactions"]["removed"] == ["id0"]
    assert reported(view(groups={"g": 1}), view(groups={"g": 2}))["groups"]["changed"][0]["lag"]["to_stable"] == 4
    assert reported(view(groups={"g": 1}), view())["groups"]["removed"] == ["g"]
    assert reported(free, replace(free, missing=("groups",))) == {"missing": {"rows": ["groups"]}}


def test_a_group_that_starts_to_wait_or_a_preparation_gives_a_blockers_event() -> None:
    behind, there = view(groups={"g": 5}), view(groups={"g": 6})  # the last stable offset is 6
    (row,) = reported(behind, there)["blockers"]["rows"]
    assert row["groups"][0]["would_wait"]
    assert "blockers" not in reported(behind, view(groups={"g": 4}))  # it waits in neither view
    prepared = replace(behind, prepared={"id0": PreparedTransaction("id0", 0, 2, "orders", 17, None)})
    (row,) = reported(behind, prepared)["blockers"]["rows"]
    assert row["prepared"]["batch"] == 17


def test_each_event_about_changes_has_at_most_100_kb_and_says_what_it_omits() -> None:
    small, large = view(held=False), large_view()
    found = reported(small, large)
    assert [len(found[name]["changed"]) for name in ("transactions", "partitions", "groups")] == [MAX_ITEMS] * 3
    assert all(found[name]["more"] for name in ("transactions", "partitions", "groups"))
    assert (len(found["blockers"]["rows"]), found["blockers"]["complete"]) == (MAX_BLOCKERS, False)
    (blocked,) = blocker_rows(large, 1)
    assert (len(blocked["groups"]), blocked["groups_count"]) == (SHOWN_IN_LIST, 500)
    wide = replace(large.open["id0"], partitions=tuple(TopicPartition(f"t{n}", 0) for n in range(5_000)))
    (row,) = open_rows(replace(large, open={"id0": wide}), 1)
    assert (len(row["partitions"]), row["partitions_count"]) == (SHOWN_IN_LIST, 5_000)
    assert all(len(json.dumps(each)) < 100_000 for each in found.values())


def test_counts_include_what_is_not_listed_and_the_oldest_transactions_are_listed() -> None:
    large = large_view()
    assert [each["transactional_id"] for each in open_rows(large, 3)] == ["id0", "id1", "id2"]
    counts = counts_row(large)
    assert (counts["topics"], counts["open_transactions"], counts["blocked_partitions"]) == (1_000, 10_000, 1_000)
    assert counts["oldest_open_ms"] == 500


@pytest.mark.parametrize("offsets", [{}, {TopicPartition("other", 0): Offsets(0, 1, 1)}])
def test_a_partition_without_known_offsets_is_left_out_of_lag_and_topic_offsets(
    offsets: dict[TopicPartition, Offsets],
) -> None:
    found = replace(view(groups={"g": 1}), offsets=offsets)
    assert topic_offsets(found.topics["t0"], found) is None
    assert group_lag(found.groups["g"], found)["partitions"] == 0
