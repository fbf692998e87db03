"""Kafka's own Java producer, which speaks the newest transaction protocol (KIP-890, TV2): no Python library does."""

import time

import pytest
from chaos_proxy import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    REPLY,
    REQUEST,
    TXN_OFFSET_COMMIT,
    ChaosProxy,
)
from fencepost.protocol.messages.transactions import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)
from java_clients import JavaError
from old_client import connected

ROUNDS = 100


@pytest.fixture
def proxy(broker):
    with ChaosProxy(broker.bootstrap) as running:
        yield running


@pytest.fixture
def producer(java, broker, name):
    made = java.producer(broker.bootstrap, f"id-{name}")
    made.do("init")
    yield made
    made.do("close")


@pytest.fixture
def distant(java, proxy, name):
    """A producer behind the proxy."""
    made = java.producer(proxy.bootstrap, f"id-{name}")
    made.do("init")
    yield made
    proxy.clear()
    made.do("close")


def transaction(producer, topic, *values, end="commit"):
    producer.do("begin")
    producer.send(topic, *values)
    producer.do(end)


def versions(proxy, api):
    return {version for link in proxy.links for key, version in link.requests if key == api}


def epoch_of(broker, topic):
    """Return the id and epoch of the only producer that partition 0 knows."""
    client = connected(broker.bootstrap)
    topics = [DescribeProducersRequest.Topic(name=topic, partition_indexes=[0])]
    (producer,) = client.call(DescribeProducersRequest(topics=topics), 0).topics[0].partitions[0].active_producers
    client.close()
    return producer.producer_id, producer.producer_epoch


def settled(look, topic, partition=0):
    """Wait until no transaction is open in a partition, and return what a reader sees."""
    until = time.monotonic() + 10
    while len(set(look.ends(topic, partition))) > 1:
        assert time.monotonic() < until, "a transaction is still open"
        time.sleep(0.01)
    return look.committed(topic, partition)


def test_javas_producer_uses_tv2_and_sends_no_add_partitions_requests(java, look, distant, proxy, name):
    look.topic(name)
    transaction(distant, name, "one")
    assert versions(proxy, ADD_PARTITIONS) == set()
    assert versions(proxy, ADD_OFFSETS) == set()
    assert versions(proxy, END_TXN) == {5}
    assert min(versions(proxy, PRODUCE)) >= 12  # from this version on, Produce adds its partitions itself


@pytest.mark.requirement("S-75", "S-98", "S-106")
def test_read_committed_returns_committed_and_no_aborted_records_of_java(look, producer, name):
    look.topic(name)
    transaction(producer, name, "one", "two")
    transaction(producer, name, "three", end="abort")
    transaction(producer, name, "four")
    assert settled(look, name) == [b"one", b"two", b"four"]
    assert b"three" in look.all(name)


def test_each_tv2_transaction_of_java_increments_the_producer_epoch(broker, look, producer, name):
    look.topic(name)
    transaction(producer, name, "one")
    settled(look, name)
    producer_id, epoch = epoch_of(broker, name)
    for end in ("commit", "abort", "commit"):
        transaction(producer, name, "more", end=end)
        settled(look, name)
    assert epoch_of(broker, name) == (producer_id, epoch + 3)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_javas_empty_transactions_can_be_committed_and_aborted(look, producer, name, end):
    look.topic(name)
    for _ in range(3):
        producer.do("begin")
        producer.do(end)
    transaction(producer, name, "one")
    producer.do("begin")
    producer.do(end)
    transaction(producer, name, "two")
    assert settled(look, name) == [b"one", b"two"]


@pytest.mark.requirement("S-90")
def test_records_are_visible_in_every_partition_as_soon_as_the_commit_returns(look, producer, name):
    """Apache Kafka answers a commit before its markers are written, so this fails there."""
    look.topic(name, 3)
    for number in range(ROUNDS):
        producer.do("round", topic=name, partitions="0,1,2", value=f"v{number}")
        seen = [look.committed(name, partition, at=2 * number) for partition in range(3)]
        assert seen == [[b"v%d" % number]] * 3


@pytest.mark.parametrize("side", [REQUEST, REPLY], ids=["lost-request", "lost-reply"])
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_commit_or_abort_of_java_succeeds_although_its_connection_is_cut(look, distant, proxy, name, end, side):
    look.topic(name)
    distant.do("begin")
    distant.send(name, "one")
    cut = proxy.cut(END_TXN, side=side)
    distant.do(end)
    assert cut.met == 1
    transaction(distant, name, "two")
    assert settled(look, name) == ([b"one", b"two"] if end == "commit" else [b"two"])


@pytest.mark.parametrize("side", [REQUEST, REPLY], ids=["lost-request", "lost-reply"])
def test_java_commits_records_and_offsets_although_produce_connections_are_cut(look, distant, proxy, name, side):
    look.topic(name)
    for number in range(5):
        distant.do("begin")
        cuts = [proxy.cut(PRODUCE, side=side), proxy.cut(TXN_OFFSET_COMMIT, side=side)]
        assert distant.send(name, f"a{number}", f"b{number}")
        distant.do("sendOffsets", group=f"group-{name}", topic=name, partition=0, offset=number + 1)
        distant.do("commit")
        assert [cut.met for cut in cuts] == [1, 1]
    assert settled(look, name) == [b"%s%d" % (letter, number) for number in range(5) for letter in (b"a", b"b")]
    assert look.offset(f"group-{name}", name) == 5


def test_java_repeats_init_producer_id_after_a_lost_reply_and_can_commit(java, look, proxy, name):
    look.topic(name)
    cut = proxy.cut(INIT_PRODUCER_ID, side=REPLY)
    producer = java.producer(proxy.bootstrap, f"id-{name}")
    producer.do("init")
    assert cut.met == 1
    transaction(producer, name, "one")
    assert settled(look, name) == [b"one"]
    producer.do("close")


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_a_late_end_txn_of_an_earlier_transaction_does_not_end_the_next(look, distant, proxy, name, end):
    """KAFKA-17754. Each TV2 transaction has an epoch of its own, so the late request is refused."""
    look.topic(name)
    for number in range(5):
        distant.do("begin")
        distant.send(name, f"old-{number}")
        held = proxy.hold(END_TXN, cut=True)
        distant.do(end)
        distant.do("begin")
        distant.send(name, f"new-{number}")
        held.arrive()
        distant.do("abort" if end == "commit" else "commit")
    kept = b"old" if end == "commit" else b"new"
    assert settled(look, name) == [b"%s-%d" % (kept, number) for number in range(5)]


def test_late_offsets_of_an_earlier_transaction_are_not_committed_by_the_next(look, distant, proxy, name):
    look.topic(name)
    group = f"group-{name}"
    for number in range(1, 4):
        distant.do("begin")
        held = proxy.hold(TXN_OFFSET_COMMIT, cut=True)
        distant.do("sendOffsets", group=group, topic=name, partition=0, offset=10 * number)
        distant.do("commit")
        distant.do("begin")
        distant.do("sendOffsets", group=group, topic=name, partition=0, offset=10 * number + 5)
        held.arrive()
        distant.do("commit")
        assert look.offset(group, name) == 10 * number + 5


@pytest.mark.requirement("S-61", "S-62", "S-63")
def test_a_second_instance_fences_the_first_and_aborts_its_transaction(java, broker, look, producer, name):
    look.topic(name)
    producer.do("begin")
    producer.send(name, "of a zombie")
    successor = java.producer(broker.bootstrap, f"id-{name}")
    successor.do("init")
    assert set(look.ends(name)) == {2}
    with pytest.raises(JavaError) as refused:
        producer.send(name, "more of it")
    assert "InvalidProducerEpochException" in refused.value.kinds
    with pytest.raises(JavaError) as refused:
        producer.do("commit")
    assert "InvalidProducerEpochException" in refused.value.kinds
    transaction(successor, name, "one")
    assert settled(look, name) == [b"one"]
    successor.do("close")


def test_a_fenced_instance_cannot_commit_records_sent_before_it_was_fenced(java, broker, look, producer, name):
    look.topic(name)
    producer.do("begin")
    producer.send(name, "of a zombie")
    successor = java.producer(broker.bootstrap, f"id-{name}")
    successor.do("init")
    with pytest.raises(JavaError) as refused:
        producer.do("commit")
    assert "ProducerFencedException" in refused.value.kinds
    assert settled(look, name) == []
    successor.do("close")


@pytest.mark.requirement("S-03", "S-82", "S-85", "S-89")
def test_javas_consumed_offsets_and_produced_records_are_committed_together(java, broker, look, producer, name):
    source, target = look.topic(f"{name}-in"), look.topic(f"{name}-out")
    expected = [f"v{number}" for number in range(60)]
    for start in range(0, 60, 20):
        transaction(producer, source, *expected[start : start + 20])
    consumer = java.consumer(broker.bootstrap, f"group-{name}", max_poll_records=7)
    consumer.do("subscribe", topic=source)
    copier = java.producer(broker.bootstrap, f"copier-{name}")
    copier.do("init")
    copied, turn, until = 0, 0, time.monotonic() + 20
    while copied < len(expected):
        assert time.monotonic() < until
        turn += 1
        end = "abort" if turn % 3 == 0 else "commit"
        answer = copier.do("copy", **{"from": consumer.name}, topic=target, ms=500, end=end)
        copied += int(answer["copied"]) if end == "commit" else 0
    assert settled(look, target) == [value.encode() + b"!" for value in expected]
    assert look.offset(f"group-{name}", source) == 62  # two markers stand between the sixty
    for client in (consumer, copier):
        client.do("close")


def test_when_epochs_run_out_java_continues_with_a_new_producer_id(java, broker, look, name):
    """Another client uses up nearly all epochs by InitProducerId requests, each of which takes one."""
    look.topic(name)
    greedy = connected(broker.bootstrap)
    request = InitProducerIdRequest(transactional_id=f"id-{name}", transaction_timeout_ms=60_000)
    epoch, first_id = -1, -1
    while epoch < 32_755:
        ahead = min(500, 32_755 - epoch)
        for _ in range(ahead):
            greedy.send(request, 4)
        for _ in range(ahead):
            answer = greedy.receive()
            if not answer.error_code:
                epoch, first_id = answer.producer_epoch, answer.producer_id
    producer = java.producer(broker.bootstrap, f"id-{name}")
    producer.do("init")
    for number in range(20):
        transaction(producer, name, f"v{number}", end="commit" if number % 4 else "abort")
    assert settled(look, name) == [b"v%d" % number for number in range(20) if number % 4]
    client = connected(broker.bootstrap)
    topics = [DescribeProducersRequest.Topic(name=name, partition_indexes=[0])]
    known = client.call(DescribeProducersRequest(topics=topics), 0).topics[0].partitions[0].active_producers
    newest = max(known, key=lambda producer: producer.producer_id)
    assert newest.producer_id > first_id
    assert newest.producer_epoch < 30  # its epochs begin at 0 again, and few transactions are left
    greedy.close()
    client.close()
    producer.do("close")


def test_an_open_transaction_in_another_partition_does_not_delay_a_commit(java, broker, look, producer, name):
    look.topic(name, 2)
    producer.do("begin")
    producer.send(name, "open", partition=0)
    other = java.producer(broker.bootstrap, f"other-{name}")
    other.do("init")
    other.do("begin")
    other.send(name, "one", partition=1)
    other.do("commit")
    assert settled(look, name, 1) == [b"one"]
    assert look.committed(name, 0) == []
    producer.do("commit")
    assert settled(look, name, 0) == [b"open"]
    other.do("close")


def test_a_commit_after_an_operators_abort_raises(java, broker, look, producer, name):
    """The producer can neither abort nor begin a transaction then. In Apache Kafka the same commit succeeds, although
    the records are aborted.
    """
    look.topic(name, 2)
    producer.do("begin")
    for partition in (0, 1):
        producer.send(name, "aborted", partition=partition)
    producer_id, epoch = epoch_of(broker, name)
    operator = connected(broker.bootstrap)
    Marker = WriteTxnMarkersRequest.Marker
    marker = Marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[Marker.Topic(name=name, partition_indexes=[0])],
        coordinator_epoch=-1,
    )
    (marked,) = operator.call(WriteTxnMarkersRequest(markers=[marker]), 1).markers
    operator.close()
    assert marked.topics[0].partitions[0].error_code == 0
    for call in ("commit", "abort", "begin"):
        with pytest.raises(JavaError) as caught:
            producer.do(call)
        assert "InvalidTxnStateException" in caught.value.kinds
    assert [settled(look, name, partition) for partition in (0, 1)] == [[], []]
    another = java.producer(broker.bootstrap, f"id-{name}")
    another.do("init")
    transaction(another, name, "again")
    another.do("close")
    assert settled(look, name, 0) + settled(look, name, 1) == [b"again"]
