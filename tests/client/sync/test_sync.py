"""The blocking clients: they forward, wait, refuse to work after a fork, and abort when they are interrupted."""

import asyncio
import inspect
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
from eventually import wait_until
from fencepost.broker.embedded.broker import Broker
from fencepost.client import sync
from fencepost.client.admin.admin import Admin as AsyncAdmin
from fencepost.client.admin.values import NewTopic
from fencepost.client.consumer.consumer import Consumer as AsyncConsumer
from fencepost.client.errors import BrokerUnreachableError, IllegalStateError, InvalidConfigurationError
from fencepost.client.producer.producer import Producer as AsyncProducer
from fencepost.client.sync.loop_thread import loop_thread
from fencepost.client.values import AcknowledgeType
from fencepost.testing.served import ObservedBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker():
    with ObservedBroker() as running:
        yield running
        running.verify()


@pytest.fixture
def topic(broker, request):
    return broker.create_topic(f"t{abs(hash(request.node.name))}")


@pytest.fixture
def producer(broker, topic):
    with sync.Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        yield producer


def values(broker, topic):
    return [record.value for record in broker.records(topic)]


def test_result_of_a_blocking_delivery_waits_until_the_record_is_written(broker, topic):
    with sync.Producer(broker.bootstrap_servers) as producer:
        deliveries = [producer.send(topic, str(number).encode()) for number in range(10)]
        assert [delivery.result().offset for delivery in deliveries] == list(range(10))
        assert deliveries[0].done()
        assert producer.send_and_wait(topic, b"last", headers={"a": b"b"}).offset == 10
        assert producer.producer_id >= 0
        assert producer.partitions_for(topic) == {0}


def test_a_blocking_producer_sends_remaining_records_when_it_closes(broker, topic):
    with sync.Producer(broker.bootstrap_servers, linger_ms=60_000) as producer:
        producer.send(topic, b"x")
    assert values(broker, topic) == [b"x"]


@pytest.mark.requirement("S-115")
def test_a_blocking_transaction_commits_at_the_end_of_its_with_block(broker, topic, producer):
    with producer.transaction() as transaction:
        transaction.send(topic, b"1")
        assert transaction.send_and_wait(topic, b"2").offset == 1
        assert values(broker, topic) == []
    assert values(broker, topic) == [b"1", b"2"]


def test_any_exception_aborts_a_transaction_and_is_raised_unchanged(broker, topic, producer):
    def fail():
        with producer.transaction() as transaction:
            transaction.send_and_wait(topic, b"1")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert values(broker, topic) == []
    assert broker.lso(topic) == broker.hw(topic)


def test_begin_commit_and_abort_work_without_a_with_block(broker, topic, producer):
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"1")
    producer.commit_transaction()
    producer.begin_transaction()
    producer.send(topic, b"2")
    producer.abort_transaction()
    assert values(broker, topic) == [b"1"]


def test_blocking_run_in_transaction_repeats_work_after_an_abort(broker, topic, producer):
    broker.faults.error("Produce", "TRANSACTION_ABORTABLE").once()
    runs = []

    def work(transaction):
        runs.append(1)
        transaction.send(topic, b"1")
        return len(runs)

    assert producer.run_in_transaction(work) == 2
    assert values(broker, topic) == [b"1"]
    broker.faults.clear()


def test_sync_admin_has_every_method_of_admin_with_its_signature(broker, topic):
    public = {name for name, _ in inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction) if name[0] != "_"}
    assert public - set(dir(sync.Admin)) == set()
    with sync.Admin(broker.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(f"{topic}-2", num_partitions=2))
        assert {topic, f"{topic}-2"} <= set(admin.list_topics())
        inner = AsyncAdmin(broker.bootstrap_servers)
        for name in public - {"start", "close"}:
            assert inspect.signature(getattr(admin, name)) == inspect.signature(getattr(inner, name)), name
            assert getattr(admin, name).__doc__ == getattr(inner, name).__doc__, name


@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_each_sync_client_has_every_method_of_its_async_client(name):
    inner = {"Producer": AsyncProducer, "Consumer": AsyncConsumer}[name]
    public = {each for each in dir(inner) if each[0] != "_"} - {"settings"}
    assert public - set(dir(getattr(sync, name))) == set()


def consuming(broker, topic, **more):
    more = {"group_id": topic, "auto_offset_reset": "earliest", **more}
    return sync.Consumer(broker.bootstrap_servers, topics=[topic], **more)


def write(broker, topic, *values):
    with sync.Producer(broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value)


def test_iterating_a_blocking_consumer_returns_single_records(broker, topic):
    write(broker, topic, b"1", b"2")
    with consuming(broker, topic) as consumer:
        assert len(consumer.assigned(timeout_ms=10_000)) == 1
        found = [record.value for _, record in zip(range(2), consumer, strict=False)]
        assert found == [b"1", b"2"]
        consumer.commit()
        assert consumer.lag() == {(topic, 0): 0}
    assert broker.committed(topic)[topic, 0].offset == 2


def test_a_blocking_consumer_waits_for_records_for_its_timeout(broker, topic):
    with consuming(broker, topic) as consumer:
        assert consumer.getmany(timeout_ms=10) == {}
        write(broker, topic, b"1")
        assert [record.value for record in consumer.getmany(timeout_ms=10_000)[topic, 0]] == [b"1"]
        consumer.seek((topic, 0), 0)
        assert consumer.getone().value == b"1"
        assert consumer.position((topic, 0)) == 1


def test_a_batch_of_an_aborted_transaction_is_returned_again(broker, topic, producer):
    out = broker.create_topic(f"{topic}-out")
    write(broker, topic, b"1", b"2", b"3")
    tries = 0
    with consuming(broker, topic) as consumer:
        for batch in consumer.batches(max_records=3):
            tries += 1
            try:
                with producer.transaction(batch) as transaction:
                    for record in batch:
                        transaction.send(out, record.value)
                    if tries == 1:
                        raise KeyError("mine")
            except KeyError:
                continue
            if consumer.position((topic, 0)) == 3:
                break
    assert values(broker, out) == [b"1", b"2", b"3"]
    assert tries > 1
    assert broker.committed(topic)[topic, 0].offset == 3


def test_a_blocking_transaction_commits_the_offsets_of_the_consumers_last_batch(broker, topic, producer):
    write(broker, topic, b"1")
    with consuming(broker, topic) as consumer:
        batch = next(consumer.batches())
        assert consumer.last_batch is batch
        with producer.transaction() as transaction:
            transaction.send_offsets_to_transaction(consumer)
    assert broker.committed(topic)[topic, 0].offset == 1


def test_ctrl_c_ends_the_wait_for_records_and_leaves_the_group(broker, topic):
    child = run_script(
        f"""
        from fencepost.client import sync
        with sync.Consumer(BOOTSTRAP, topics=[{topic!r}], group_id={topic!r}, auto_offset_reset="earliest") as consumer:
            consumer.assigned()
            print("assigned", flush=True)
            for record in consumer:
                pass
        """,
        broker,
    )
    assert child.stdout.readline() == "assigned\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=30)
    assert "KeyboardInterrupt" in error
    assert not broker.inside(lambda inner: inner.groups.groups[topic].members if topic in inner.groups.groups else ())


def test_blocking_clients_take_settings_from_other_clients_configurations(broker, topic):
    config = {"bootstrap.servers": broker.bootstrap_servers}
    with sync.Producer.from_config({**config, "linger.ms": 1}) as producer, sync.Admin.from_config(config) as admin:
        producer.send_and_wait(topic, b"x")
        assert topic in admin.list_topics()


def test_all_sync_clients_of_a_process_share_one_thread(broker):
    def named() -> set[threading.Thread]:
        return {one for one in threading.enumerate() if one.name == "fencepost-sync"}

    with sync.Admin(broker.bootstrap_servers):
        first = named()
        assert len(first) == 1
        with sync.Producer(broker.bootstrap_servers), sync.Admin(broker.bootstrap_servers):
            assert named() == first


async def test_sync_clients_work_where_a_loop_runs_already_as_in_a_notebook(broker, topic):
    with sync.Producer(broker.bootstrap_servers) as producer:
        producer.send_and_wait(topic, b"x")
    assert values(broker, topic) == [b"x"]


def test_a_blocking_call_inside_the_loop_thread_raises_illegal_state():
    thread = loop_thread()

    async def inside():
        thread.run(lambda: asyncio.sleep(0))

    with pytest.raises(IllegalStateError, match="inside a callback"):
        thread.run(inside)


def run_script(script, broker, **more):
    """Start the script in a process that raises KeyboardInterrupt on SIGINT. (A process that a shell runs in the
    background ignores the signal, and so would those that it starts.)
    """
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = listening + textwrap.dedent(script).replace("BOOTSTRAP", repr(broker.bootstrap_servers))
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_in_a_forked_child_the_parents_producer_raises_and_a_new_one_works(broker, topic):
    child = run_script(
        f"""
        import os, warnings
        warnings.simplefilter("ignore")
        from fencepost.client import sync
        from fencepost.client.errors import ForkedError
        producer = sync.Producer(BOOTSTRAP)
        producer.start()
        child = os.fork()
        if child == 0:
            try:
                producer.send({topic!r}, b"old")
            except ForkedError as error:
                with sync.Producer(BOOTSTRAP) as another:
                    another.send_and_wait({topic!r}, b"child")
                    os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        producer.send_and_wait({topic!r}, b"parent")
        producer.close()
        """,
        broker,
    )
    _, error = child.communicate(timeout=60)
    assert child.returncode == 0, error
    assert values(broker, topic) == [b"child", b"parent"]


def test_a_forked_child_that_exits_leaves_its_parents_clients_usable(broker, topic):
    child = run_script(
        f"""
        import os, sys
        from fencepost.client import sync
        with sync.Producer(BOOTSTRAP) as producer, sync.Consumer(BOOTSTRAP) as consumer, sync.Admin(BOOTSTRAP) as admin:
            child = os.fork()
            if child:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
                assert admin.describe_cluster()
                assert consumer.topics() is not None
                producer.send_and_wait({topic!r}, b"parent")
            else:
                producer.close()
                sys.exit(7)
        """,
        broker,
    )
    _, error = child.communicate(timeout=60)
    assert child.returncode == 0, error
    assert values(broker, topic) == [b"parent"]


@pytest.mark.parametrize(
    "doing", ["time.sleep(60)", "tx.send_and_wait(TOPIC, b'answered late')"], ids=["the user's work", "a call"]
)
def test_ctrl_c_aborts_an_open_transaction(broker, topic, doing):
    broker.faults.delay("Produce", 1.5, when="after_write").where(lambda asked: b"answered late" in bytes_in(asked))
    child = run_script(
        f"""
        import time
        from fencepost.client import sync
        TOPIC = {topic!r}
        with sync.Producer(BOOTSTRAP, transactional_id=TOPIC, delivery_timeout_ms=60_000) as producer:
            with producer.transaction() as tx:
                tx.send_and_wait(TOPIC, b"1")
                print("open", flush=True)
                {doing}
        """,
        broker,
    )
    assert child.stdout.readline() == "open\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    broker.faults.clear()
    assert child.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in error
    assert broker.lso(topic) == broker.hw(topic)
    assert values(broker, topic) == []


def bytes_in(request):
    return b"".join(bytes(part.records) for topic in request.topic_data for part in topic.partition_data)


def test_importing_the_sync_clients_starts_no_thread():
    done = subprocess.run(
        [sys.executable, "-c", "import threading, fencepost.client.sync; print(threading.active_count())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "1"


def test_starting_a_blocking_client_raises_if_the_broker_is_unreachable():
    with Broker() as broker:
        where = broker.bootstrap_servers
    with pytest.raises(BrokerUnreachableError, match=where.rpartition(":")[2]):
        sync.Admin(where, connect_timeout_ms=500, default_api_timeout_ms=500).start()


def killed_in_its_transaction(broker, topic, doing=""):
    """Let a process write in a transaction, and kill it before it ends it. doing: a statement after the write."""
    child = run_script(
        f"""
        import time
        from fencepost.client import sync
        from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
        producer = sync.Producer(BOOTSTRAP, transactional_id={topic!r}, transaction_timeout_ms=900_000)
        with producer, producer.transaction() as tx:
            tx.send_and_wait({topic!r}, b"left open")
            {doing}
            print("open", flush=True)
            time.sleep(60)
        """,
        broker,
    )
    assert child.stdout.readline() == "open\n"
    child.kill()
    child.communicate(timeout=30)


def test_starting_a_blocking_producer_aborts_a_killed_ones_transaction(broker, topic):
    killed_in_its_transaction(broker, topic)
    assert broker.lso(topic) < broker.hw(topic)
    with sync.Producer(broker.bootstrap_servers, transactional_id=topic):
        assert broker.lso(topic) == broker.hw(topic)
    assert values(broker, topic) == []


def test_starting_a_killed_producers_successor_frees_the_offsets_of_its_group(broker, topic):
    write(broker, topic, b"1", b"2")
    offsets = f"{{TopicPartition({topic!r}, 0): OffsetAndMetadata(2)}}, ConsumerGroupMetadata({topic!r})"
    killed_in_its_transaction(broker, topic, f"tx.send_offsets_to_transaction({offsets})")
    with (
        sync.Producer(broker.bootstrap_servers, transactional_id=topic) as producer,
        consuming(broker, topic) as consumer,
    ):
        (successor,) = [one for one in broker.transactions() if one.transactional_id == topic]
        assert successor.state == "Empty", "it ended that itself, and nobody waits for a timeout"
        batch = next(consumer.batches())
        assert [record.value for record in batch] == [b"1", b"2"]
        with producer.transaction(batch):
            pass
    assert broker.committed(topic)[topic, 0].offset == batch.offsets[topic, 0].offset


@pytest.mark.parametrize("enters", [True, False])
def test_a_refused_start_raises_the_reason_and_leaves_no_connection(broker, topic, enters):
    connections = broker.inside(lambda inner: len(inner.server.connections))
    producer = sync.Producer(broker.bootstrap_servers, transactional_id=topic, transaction_timeout_ms=10_000_000)
    with pytest.raises(InvalidConfigurationError, match="timeout"):
        producer.__enter__() if enters else producer.start()
    wait_until(lambda: broker.inside(lambda inner: len(inner.server.connections)) == connections)


def test_init_transactions_after_start_changes_no_id_or_epoch(broker, topic, producer):
    identity = producer.producer_id, producer.producer_epoch
    assert identity[0] >= 0
    producer.init_transactions()
    assert (producer.producer_id, producer.producer_epoch) == identity


def test_a_blocking_share_consumer_returns_acknowledges_and_releases_records(broker, topic):
    with sync.Producer(broker.bootstrap_servers) as producer:
        for value in (b"0", b"1", b"2"):
            producer.send_and_wait(topic, value)
    group = {"topics": [topic], "group_id": topic, "auto_offset_reset": "earliest"}
    with sync.ShareConsumer(broker.bootstrap_servers, **group) as consumer:
        record = next(consumer)
        assert (record.value, record.delivery_count) == (b"0", 1)
        consumer.acknowledge(record)
        (rest,) = consumer.batches(timeout_ms=300)
        assert [each.value for each in rest] == [b"1", b"2"]
        consumer.acknowledge(rest[0], AcknowledgeType.REJECT)
        consumer.commit()
        assert consumer.subscription() == {topic}
    config = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": topic,
        "share.acknowledgement.mode": "implicit",
    }
    with sync.ShareConsumer.from_config(config, topics=[topic]) as consumer:
        assert [(each.value, each.delivery_count) for each in consumer.getmany(timeout_ms=5_000)] == [(b"2", 2)]
        assert consumer.getmany(timeout_ms=100) == []


def test_a_blocking_transaction_acknowledges_records_of_a_share_consumer(broker, topic, producer):
    bills = broker.create_topic(f"{topic}-bills")
    with sync.Producer(broker.bootstrap_servers) as orders:
        orders.send_and_wait(topic, b"42")
    group = {"topics": [topic], "group_id": topic, "auto_offset_reset": "earliest"}
    with sync.ShareConsumer(broker.bootstrap_servers, **group) as consumer:
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:  # noqa: PT012
            tx.acknowledge(consumer, next(consumer))
            raise ZeroDivisionError
        record = consumer.getone(timeout_ms=5_000)
        with producer.transaction() as tx:
            tx.send(bills, record.value)
            tx.acknowledge(consumer, record)
    with sync.ShareConsumer(broker.bootstrap_servers, **group) as consumer:
        assert consumer.getmany(timeout_ms=300) == []
    assert values(broker, bills) == [b"42"]
