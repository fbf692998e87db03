"""What a cutover would do, and why it would not."""

import pytest
from fencepost.client.mirror.cutover.plan import (
    Found,
    GroupFound,
    Written,
    find_moved,
    find_overtaken,
    find_refusals,
    move_groups,
    refuse_written,
    steps,
)
from fencepost.client.mirror.findings import named
from fencepost.client.mirror.group_offsets import PartitionMap
from fencepost.client.mirror.offset_map import Run
from fencepost.client.values import OffsetAndMetadata, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
FINE = GroupFound("classic", {A: OffsetAndMetadata(3)})


def found(groups=None, **more):
    given = {"topics": ("a", "b"), "barrier": "setting", "refusing": frozenset(), "ends": {A: 9, B: 0}}
    return Found(groups={"g": FINE} if groups is None else groups, **{**given, **more})


def group(offset=3, **more):
    return GroupFound(**{"kind": "classic", "offsets": {A: OffsetAndMetadata(offset)}, **more})


@pytest.mark.parametrize(
    ("seen", "refusals"),
    [
        (found(), []),
        (found(barrier="rule"), []),
        (found(topics=(), groups={}), ["the mirror has copied no topic"]),
        (found(groups={}), ["no consumer group of the source has the name and offsets in mirrored topics"]),
        (
            found(barrier="none"),
            ["the source cannot refuse writes: it has no rules of access, and no topic setting for it"],
        ),
        (found(barrier="none", producers_stopped=True), []),
        (found(stopped={B: "it was cut"}), ["the mirror has stopped b-0: it was cut"]),
        (found({"g": group(members=("x@h", "y@h"))}), ["group g has members at the source: x@h, y@h"]),
        (found({"g": group(members_there=("x@h",))}), ["group g has members at the target: x@h"]),
        (found({"g": group(10)}), ["group g is at offset 10 of a-0, which ends at 9"]),
        (found({"g": group(9)}), []),
        (
            found({"g": group(9)}, ends={B: 0}),
            ["group g has an offset in a-0, which is not at the source"],
        ),
        (
            found({"g": group(others=("c",))}),
            ["group g has offsets in topics that the mirror does not copy: c"],
        ),
        (found({"g": group(others=("c",))}, partly=True), []),
        (found({"g": group(kind="share")}), ["g is a share group, and what it has acknowledged cannot be moved"]),
        (
            found({"h": group(kind="share"), "g": group(members=("x@h",))}, stopped={A: "gone"}),
            [
                "the mirror has stopped a-0: gone",
                "group g has members at the source: x@h",
                "h is a share group, and what it has acknowledged cannot be moved",
            ],
        ),
    ],
)
def test_find_refusals_returns_all_problems_of_a_cutover_at_once(seen, refusals):
    assert [each.text for each in find_refusals(seen)] == refusals
    assert all(each.is_fatal and each.hint for each in find_refusals(seen))


def test_steps_of_a_cutover_say_what_they_do_and_what_undoes_it_if_anything_must():
    texts = [step.text for step in steps(found(refusing=frozenset({"b"})))]
    assert texts[0] == "b refuses writes already: leave it so"
    assert texts[1].startswith("refuse writes to a at the source, by its setting")
    undone = [step.undo for step in steps(found(refusing=frozenset({"b"}))) if step.undo]
    assert undone == ["allow them again to a", "put back what was there"]
    assert "a rule of access" in steps(found(barrier="rule"))[0].text
    assert steps(found(barrier="none"))[0].undo is None


def test_offsets_moved_by_a_cutover_keep_their_metadata_and_have_no_leader_epoch():
    groups = {"g": {A: OffsetAndMetadata(3, "text", 7), B: OffsetAndMetadata(0)}}
    maps = {A: PartitionMap([Run(0, 0, 2), Run(5, 3, 1)]), B: PartitionMap([])}
    assert move_groups(groups, maps, {A: 5, B: 0}) == {"g": {A: OffsetAndMetadata(3, "text"), B: OffsetAndMetadata(0)}}


def test_find_overtaken_returns_a_problem_per_group_that_is_further_on_the_target():
    there = {A: OffsetAndMetadata(8)}
    problems = find_overtaken({"g": group(there=there), "h": group()}, {"g": {A: OffsetAndMetadata(7)}, "h": {}})
    assert [each.text.partition(",")[0] for each in problems] == ["group g stands at offset 8 of a-0 at the target"]
    assert find_overtaken({"g": group(there=there)}, {"g": {A: OffsetAndMetadata(8)}}) == []


@pytest.mark.parametrize(
    ("after", "problems"),
    [
        ({"g": group()}, []),
        ({"g": group(4)}, ["group g has committed offset 4 of a-0 at the source meanwhile; it was 3"]),
        ({}, ["group g has committed offset None of a-0 at the source meanwhile; it was 3"]),
        ({"g": group(), "h": group(1)}, ["group h has committed offset 1 of a-0 at the source meanwhile; it was None"]),
        ({"g": group(members=("x@h",))}, ["group g has got members at the source meanwhile: x@h"]),
        ({"g": group(members_there=("x@h",))}, ["group g has got members at the target meanwhile: x@h"]),
    ],
)
def test_find_moved_names_source_groups_whose_offsets_or_members_changed_meanwhile(after, problems):
    assert [each.text for each in find_moved({"g": group()}, after)] == problems


def test_refuse_written_returns_a_problem_per_producer_that_wrote_during_the_cutover():
    written = [Written(A, 9, 0, 7, "copier"), Written(A, 9, 0, 7), Written(B, 0, 0, -1)]
    assert [each.text for each in refuse_written(written, "source")] == [
        "the transactional producer copier has written to a-0 at the source, at offset 9",
        "an idempotent producer (id 7) has written to a-0 at the source, at offset 9",
        "a producer without an id has written to b-0 at the source, at offset 0",
    ]


def test_named_returns_a_text_of_the_first_five_names_and_the_count_of_the_others():
    assert named(f"n{each}" for each in range(7)) == "n0, n1, n2, n3, n4 and 2 more"
