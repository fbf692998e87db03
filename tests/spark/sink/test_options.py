"""The options of the sink: what they mean, which are refused, and which cannot be combined."""

import pytest
from fencepost.client.errors import InvalidConfigurationError
from fencepost.spark.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE, digest_of, sink_options, stream_mark
from fencepost.spark.sink.protocol import MAX_SINK_ID_CHARS

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def options(*, streaming=True, **given):
    return sink_options(SERVERS | given, streaming=streaming)


def refused(streaming=True, **given):
    with pytest.raises(InvalidConfigurationError) as caught:
        options(streaming=streaming, **given)
    return str(caught.value)


def test_without_options_topic_guarantee_sink_id_and_batch_id_are_unset():
    found = options()
    assert (found.topic, found.guarantee, found.sink_id, found.batch_id) == (None, None, None, None)
    assert found.prepared_timeout_ms == 3_600_000


def test_option_names_and_delivery_guarantees_are_case_insensitive():
    found = options(TOPIC="t", deliveryguarantee=" At_Least_Once ")
    assert (found.topic, found.guarantee) == ("t", AT_LEAST_ONCE)


@pytest.mark.parametrize(("time", "ms"), [("-1", -1), ("90s", 90_000), ("2h", 7_200_000), ("999999h", 2**31 - 1)])
def test_prepared_timeout_is_parsed_to_milliseconds(time, ms):
    assert options(preparedTimeout=time).prepared_timeout_ms == ms


def test_an_unknown_delivery_guarantee_is_refused_and_the_known_are_listed():
    message = refused(deliveryGuarantee="exactly-once")
    assert EXACTLY_ONCE in message
    assert AT_LEAST_ONCE in message


@pytest.mark.parametrize("name", ["transactional.id", "transaction.timeout.ms"])
def test_kafka_options_that_the_sink_sets_itself_are_refused(name):
    assert f"kafka.{name}" in refused(**{f"kafka.{name}": "1000"})


@pytest.mark.parametrize("wrong", ["", "a b", "ä", "x" * (MAX_SINK_ID_CHARS + 1)])
def test_an_invalid_sink_id_is_refused(wrong):
    assert "sinkId" in refused(streaming=False, sinkId=wrong, batchId="1")


def test_async_progress_tracking_is_allowed_only_with_at_least_once():
    assert "asyncProgressTrackingEnabled" in refused(asyncProgressTrackingEnabled="true")
    assert options(asyncProgressTrackingEnabled="true", deliveryGuarantee=AT_LEAST_ONCE).guarantee == AT_LEAST_ONCE


def test_an_unknown_sink_option_is_refused_and_the_nearest_suggested():
    assert "'sinkId'" in refused(sinkld="a")


def test_stream_mark_differs_by_checkpoint_query_name_and_topic():
    marks = {
        stream_mark(options(checkpointLocation="/a")),
        stream_mark(options(checkpointLocation="/a", topic="t")),
        stream_mark(options(checkpointLocation="/b")),
        stream_mark(options(queryName="q")),
    }
    assert len(marks) == 4
    assert {len(mark) for mark in marks} == {16}
    assert stream_mark(options(topic="t")) == ""


def test_a_micro_batchs_digest_depends_on_topic_and_planned_offsets_not_on_its_time():
    """The digest identifies what Spark planned for a micro-batch. A sink without a topic (None: a column of the rows
    names it) and one with the topic "*" have different digests, too."""

    def file(time, offsets):
        return f'v1\n{{"batchTimestampMs":{time}}}\n{offsets}\n'

    planned = digest_of("t", file(1, '{"a":{"0":5}}'))
    assert digest_of("t", file(2, '{"a":{"0":5}}\n')) == planned
    assert digest_of("t", file(1, '{"a":{"0":6}}')) != planned
    assert digest_of(None, file(1, '{"a":{"0":5}}')) != planned
    assert digest_of("*", None) != digest_of(None, None)
