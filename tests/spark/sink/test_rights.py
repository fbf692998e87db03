"""With an authorizer: the rights of docs/spark.md are enough for each kind of write, and each of them is needed."""

import pytest
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from fencepost.client import sync
from fencepost.client.admin.security_values import AclBinding
from fencepost.client.errors import AuthorizationError
from fencepost.spark.sink.writer import JOB_GROUP, QUERY_ID
from served_broker import ServedBroker
from spark_sink import Sink, arrow

ME = "User:ANONYMOUS"
UNNAMED = [("fencepost.once.fencepost.write.", "prefixed"), ("fencepost.write.", "prefixed")]
OF_SINKS = {
    "all": [("fencepost.once.all.", "prefixed"), ("all", "literal"), ("all#writes", "literal")],
    "no-tasks": [("no-tasks", "literal"), ("no-tasks#writes", "literal")],
    "no-decision": [("fencepost.once.no-decision.", "prefixed"), ("no-decision#writes", "literal")],
    "no-claim": [("fencepost.once.no-claim.", "prefixed"), ("no-claim", "literal")],
}


@pytest.fixture(scope="module")
def sink(tmp_path_factory):
    """A topic, and a broker at which the user ME has the rights of UNNAMED and OF_SINKS and to read the topic, and no
    other.

    The rules were made before by a broker at which ME was a super user.
    """
    settings = {"log_dir": str(tmp_path_factory.mktemp("rights")), "authorizer_class_name": STANDARD_AUTHORIZER}
    ids = [*UNNAMED, *(each for some in OF_SINKS.values() for each in some)]
    with ServedBroker(super_users=(ME,), **settings) as broker, sync.Admin(Sink(broker, "t").servers) as admin:
        rules = [AclBinding(ME, "write", "transactional_id", name, pattern) for name, pattern in ids]
        admin.create_acls([AclBinding(ME, "write", "topic", "t"), AclBinding(ME, "read", "topic", "t"), *rules])
    with ServedBroker(**settings) as broker:
        yield Sink(broker, "t", is_new=False)


def stream(sink, name, number):
    return sink.job(True, query="q", number=number, sinkId=name)


def foreachbatch(sink, name, number):
    job = sink.job(False, sinkId=name, batchId=str(number))
    job.properties = {QUERY_ID: "q", JOB_GROUP: "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
    return job


def unnamed(sink, name, number):
    return sink.job(False)


@pytest.mark.parametrize(("kind", "number"), [(stream, 0), (foreachbatch, 1), (unnamed, 0)])
def test_the_documented_rights_suffice_to_commit_and_to_abort_a_write(sink, kind, number):
    before = len(sink.rows())
    failed, job = kind(sink, "all", number), kind(sink, "all", number)
    failed.abort([failed.task([arrow(b"no")]), None])
    job.commit([job.task([arrow(b"yes")])])
    assert not sink.open()
    assert sink.rows()[before:] == [b"yes"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(stream, "no-tasks"), (stream, "no-decision"), (foreachbatch, "no-claim")],
)
def test_a_missing_right_raises_an_error_that_lists_the_rights_of_a_sink(sink, kind, name):
    job = kind(sink, name, 0)
    with pytest.raises(AuthorizationError) as refused:
        job.commit([job.task([arrow(b"1")])])
    (note,) = refused.value.__notes__
    for needed in ("Write", "fencepost.once.", "sinkId", "#writes", "fencepost.write."):
        assert needed in note
    assert sink.rows().count(b"1") == 0
