"""The catalogue: a state that follows from its records, whichever of them compaction left."""

import pytest
from fencepost.broker.topics.catalogue import (
    Catalogue,
    Change,
    MarkerDebt,
    NewerCatalogue,
    TopicEntry,
    broker_configs_changed,
    cluster_begun,
    group_configs_changed,
    marker_owed,
    marker_paid,
    producer_ids_given,
    topic_changed,
    topic_gone,
)
from hypothesis import given
from hypothesis import strategies as st

IDS = [bytes([number]) * 16 for number in range(4)]
TOPIC = TopicEntry("a", IDS[0], (1, 2), {"retention.ms": "5"})


def replayed(changes: list[Change]) -> Catalogue:
    catalogue = Catalogue()
    for key, value in changes:
        catalogue.apply(key, value)
    return catalogue


def compacted(changes: list[Change]) -> list[Change]:
    """Return the last change of each key, in order."""
    last = {change.key: number for number, change in enumerate(changes)}
    return [change for number, change in enumerate(changes) if last[change.key] == number]


def test_of_several_catalogue_records_of_a_topic_the_last_one_applies() -> None:
    grown = TopicEntry("a", IDS[0], (1, 2, 7), {})
    catalogue = replayed([topic_changed(TOPIC), topic_changed(grown)])
    assert catalogue.topics == {IDS[0]: grown}
    assert replayed([topic_changed(TOPIC), topic_gone(IDS[0])]).topics == {}


def test_a_recreated_topic_gets_a_new_topic_id() -> None:
    again = TopicEntry("a", IDS[1], (3,), {})
    catalogue = replayed([topic_changed(TOPIC), topic_gone(IDS[0]), topic_changed(again)])
    assert catalogue.topics == {IDS[1]: again}


def test_a_replayed_catalogue_has_the_cluster_id_and_the_last_broker_configs() -> None:
    """It also has the next producer id that the last record names."""
    catalogue = replayed(
        [
            cluster_begun("abc"),
            producer_ids_given(1000),
            producer_ids_given(2000),
            broker_configs_changed("", {"message.max.bytes": "9"}),
            broker_configs_changed("1", {"max.connections": "9"}),
            broker_configs_changed("", {}),
        ]
    )
    assert catalogue.cluster_id == "abc"
    assert catalogue.next_producer_id == 2000
    assert catalogue.broker_configs == {"": {}, "1": {"max.connections": "9"}}


def test_newer_catalogue_records_replace_a_groups_settings_or_if_empty_remove_them() -> None:
    session, heartbeat = {"consumer.session.timeout.ms": "50000"}, {"consumer.heartbeat.interval.ms": "6000"}
    given = [group_configs_changed("a", session), group_configs_changed("b", session)]
    assert replayed([*given, group_configs_changed("b", heartbeat)]).group_configs == {"a": session, "b": heartbeat}
    assert replayed([*given, group_configs_changed("a", {})]).group_configs == {"b": session}


def test_the_catalogue_lists_a_marker_owed_to_an_offline_partition_until_written() -> None:
    """A marker is owed to an offline partition when a transaction that wrote to it has ended."""
    debts = [MarkerDebt(3, 0, True), MarkerDebt(0, 0, False)]
    catalogue = replayed([marker_owed(5, 1000, debts[0]), marker_owed(5, 1001, debts[1]), marker_paid(5, 1001)])
    assert catalogue.marker_debts == {(5, 1000): debts[0]}
    assert replayed([marker_owed(5, 1000, debts[0]), marker_paid(5, 1000)]).marker_debts == {}


def test_a_catalogue_record_of_an_unknown_kind_or_version_raises_newer_catalogue() -> None:
    with pytest.raises(NewerCatalogue, match="'teapot'"):
        Catalogue().apply(b"\x91\xa6teapot", b"\x80")
    key, value = cluster_begun("abc")
    assert value is not None
    with pytest.raises(NewerCatalogue, match="version 2"):
        Catalogue().apply(key, value.replace(b"\xa7version\x01", b"\xa7version\x02"))


entries = st.builds(
    TopicEntry,
    st.sampled_from("abc"),
    st.sampled_from(IDS),
    st.lists(st.integers(1, 2**40), max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.sampled_from(["1", "2"])),
)
DEBTS = st.builds(MarkerDebt, st.integers(0, 9), st.just(0), st.booleans())
changes = st.one_of(
    entries.map(topic_changed),
    st.sampled_from(IDS).map(topic_gone),
    st.integers(0, 2**62).map(producer_ids_given),
    st.builds(broker_configs_changed, st.sampled_from(["", "1"]), st.dictionaries(st.just("num"), st.just("1"))),
    st.sampled_from("xyz").map(cluster_begun),
    st.builds(marker_owed, st.integers(1, 3), st.integers(0, 2), DEBTS),
    st.builds(marker_paid, st.integers(1, 3), st.integers(0, 2)),
)


@given(st.lists(changes, max_size=30))
def test_a_replay_after_compaction_gives_the_state_of_a_full_replay(history: list[Change]) -> None:
    whole, left = replayed(history), replayed(compacted(history))
    assert left.topics == whole.topics
    assert {k: v for k, v in left.broker_configs.items() if v} == {k: v for k, v in whole.broker_configs.items() if v}
    assert (left.cluster_id, left.next_producer_id) == (whole.cluster_id, whole.next_producer_id)
    assert left.marker_debts == whole.marker_debts
