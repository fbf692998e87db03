"""The pytest plugin: each test runs a test file in a pytest of its own, as a user of the plugin would."""

import subprocess
import sys

import pytest
from long_runs import first_only

WITH_CONFLUENT = """
    def test_a_sync_client(fp_bootstrap, fp_topic, fp_broker):
        from confluent_kafka import Consumer, Producer
        producer = Producer({"bootstrap.servers": fp_bootstrap})
        producer.produce(fp_topic, b"42", key=b"alice")
        assert producer.flush(10) == 0
        consumer = Consumer({"bootstrap.servers": fp_bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe([fp_topic])
        message = consumer.poll(10)
        assert message.value() == b"42"
        consumer.commit(message, asynchronous=False)
        consumer.close()
        (record,) = fp_broker.records(fp_topic)
        assert (record.key, record.value, record.offset) == (b"alice", b"42", 0)
        assert fp_broker.hw(fp_topic) == fp_broker.lso(fp_topic) == 1
        assert {str(place): at.offset for place, at in fp_broker.committed("g").items()} == {f"{fp_topic}-0": 1}
"""

WITH_KAFKA_PYTHON = """
    def test_a_sync_client(fp_bootstrap, fp_topic, fp_broker):
        from kafka import KafkaConsumer, KafkaProducer
        with KafkaProducer(bootstrap_servers=fp_bootstrap) as producer:
            producer.send(fp_topic, b"42").get(10)
        consumer = KafkaConsumer(fp_topic, bootstrap_servers=fp_bootstrap, auto_offset_reset="earliest")
        assert next(consumer).value == b"42"
        consumer.close()
        assert [record.value for record in fp_broker.records(fp_topic)] == [b"42"]
"""

WITH_AIOKAFKA = """
    import pytest
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    {mark}
    async def test_an_async_client(fp_bootstrap, fp_topic, fp_broker):
        async with AIOKafkaProducer(bootstrap_servers=fp_bootstrap, transactional_id=fp_topic) as producer:
            async with producer.transaction():
                await producer.send_and_wait(fp_topic, b"42")
                assert fp_broker.lso(fp_topic) == 0
                assert fp_broker.records(fp_topic) == []
                (open_one,) = [one for one in fp_broker.transactions() if one.transactional_id == fp_topic]
                assert (open_one.state, open_one.partitions) == ("Ongoing", ((fp_topic, 0),))
        async with AIOKafkaConsumer(
            fp_topic, bootstrap_servers=fp_bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            assert (await consumer.getone()).value == b"42"
"""


@pytest.mark.parametrize("source", [WITH_CONFLUENT, WITH_KAFKA_PYTHON], ids=["confluent", "kafka-python"])
def test_synchronous_tests_can_produce_and_consume_with_each_supported_client(run, source):
    run(source, subprocess=True).assert_outcomes(passed=1)  # kafka-python leaves sockets behind


@pytest.mark.parametrize(("mode", "mark"), [("auto", ""), ("strict", "@pytest.mark.asyncio")])
def test_async_tests_use_any_client_in_either_mode_of_pytest_asyncio(run, mode, mark):
    run(WITH_AIOKAFKA.format(mark=mark), mode=mode).assert_outcomes(passed=1)


WITH_THE_SDK = """
    import pytest
    import fencepost as fp

    {mark}
    async def test_a_producer(fp_producer, fp_topic, fp_broker):
        metadata = await fp_producer.send_and_wait(fp_topic, b"42", key=b"alice")
        assert metadata.offset == 0
        assert [record.value for record in fp_broker.records(fp_topic)] == [b"42"]

    {mark}
    @pytest.mark.fencepost(transaction_timeout="30s")
    async def test_a_transactional_producer(fp_txn_producer, fp_topic, fp_broker, fp_clock):
        async with fp_txn_producer.transaction() as tx:
            await tx.send(fp_topic, b"1")
        with pytest.raises(fp.KafkaError):
            async with fp_txn_producer.transaction() as tx:
                await tx.send_and_wait(fp_topic, b"2")
                fp_clock.advance(31)
        assert [record.value for record in fp_broker.records(fp_topic)] == [b"1"]

    {mark}
    async def test_a_consumer(fp_consumer, fp_producer, fp_topic):
        await fp_producer.send_and_wait(fp_topic, b"42")
        assert (await fp_consumer.getone()).value == b"42"

    {mark}
    async def test_a_share_consumer(fp_share_consumer, fp_txn_producer, fp_producer, fp_topic, fp_topics, fp_broker):
        (invoices,), group = fp_topics(), fp_share_consumer.state().group_id
        for order in (b"1", b"2"):
            await fp_producer.send_and_wait(fp_topic, order)
        async for order in fp_share_consumer:
            assert fp_broker.share_lag(group) == {{(fp_topic, 0): 3 - int(order.value)}}
            async with fp_txn_producer.transaction() as tx:
                await tx.acknowledge(fp_share_consumer, order)
                await tx.send(invoices, order.value)
            if order.value == b"2":
                break
        assert fp_broker.share_lag(group) == {{(fp_topic, 0): 0}}
        fp_broker.assert_exactly_once(fp_topic, invoices)

    {mark}
    async def test_admin(fp_admin, fp_topic):
        assert fp_topic in await fp_admin.list_topics()
"""


@pytest.mark.parametrize(("mode", "mark"), first_only([("auto", ""), ("strict", "@pytest.mark.asyncio")]))
def test_sdk_client_fixtures_run_in_the_event_loop_of_the_test(run, mode, mark):
    # In a process of its own: pytester forgets modules between runs, and then there are two classes of each error.
    run(WITH_THE_SDK.format(mark=mark), mode=mode, subprocess=True).assert_outcomes(passed=5)


def test_each_test_gets_topics_of_its_own_with_as_many_partitions_as_it_asks_for(run):
    run("""
        import pytest

        @pytest.mark.parametrize("number", [1, 2])
        def test_a(fp_topic, fp_broker, number, seen=set()):
            assert fp_topic not in seen
            seen.add(fp_topic)
            assert fp_broker.topics()[fp_topic] == 1

        @pytest.mark.fencepost(partitions=3)
        def test_marked(fp_topic, fp_topics, fp_broker):
            one, other = fp_topics(2)
            (compacted,) = fp_topics(partitions=2, cleanup_policy="compact")
            topics = fp_broker.topics()
            assert [topics[name] for name in (fp_topic, one, other, compacted)] == [3, 3, 3, 2]
    """).assert_outcomes(passed=3)


MISSPELT = {
    "partition=3": "no argument partition",
    "3": "keyword arguments only",
    "transaction_timeout='soon'": "not 'soon'",
    "clients=['pykafka']": "not pykafka",
}


def test_misspelt_arguments_of_the_fencepost_marker_fail_the_test(run):
    tests = [
        f"""
        @pytest.mark.fencepost({arguments})
        def test_{number}(request):
            wishes_of(request.node).transaction_timeout_ms
        """
        for number, arguments in enumerate(MISSPELT)
    ]
    result = run(
        """
        import pytest
        from fencepost.testing.marker import wishes_of
        """
        + "".join(tests)
    )
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines([f"E *{text}*" for text in MISSPELT.values()])


def test_the_marker_clients_runs_a_test_once_for_each_named_client(run):
    run("""
        import pytest

        clients = []

        @pytest.mark.fencepost(clients=["aiokafka", "confluent"])
        def test_a(fp_client, fp_bootstrap):
            clients.append(fp_client)

        def test_b():
            assert sorted(clients) == ["aiokafka", "confluent"]
    """).assert_outcomes(passed=3)


def test_a_killed_or_paused_broker_is_restored_for_the_next_test(run):
    run("""
        from confluent_kafka import Producer

        def write(fp_bootstrap, topic):
            producer = Producer({"bootstrap.servers": fp_bootstrap, "log_level": 0})
            producer.produce(topic, b"x")
            assert producer.flush(10) == 0

        def test_kill(fp_broker, fp_bootstrap, fp_topic):
            write(fp_bootstrap, fp_topic)
            fp_broker.kill()
            fp_broker.restart()
            write(fp_bootstrap, fp_topic)
            assert fp_broker.hw(fp_topic) == 2
            fp_broker.kill()

        def test_pause(fp_broker, fp_bootstrap, fp_topic):
            write(fp_bootstrap, fp_topic)
            fp_broker.pause()

        def test_after(fp_broker, fp_bootstrap, fp_topic):
            write(fp_bootstrap, fp_topic)
    """).assert_outcomes(passed=3)


def test_the_clock_fixture_expires_transactions_and_is_reset_afterwards(run):
    run("""
        import time
        from confluent_kafka import KafkaException, Producer
        import pytest

        def test_a(fp_clock, fp_bootstrap, fp_topic, fp_broker):
            producer = Producer({"bootstrap.servers": fp_bootstrap, "transactional.id": "slow", "log_level": 0,
                                 "transaction.timeout.ms": 60_000})
            producer.init_transactions(10)
            producer.begin_transaction()
            producer.produce(fp_topic, b"x")
            producer.flush(10)
            fp_clock.advance(61)
            assert fp_clock.now() > time.time() + 60
            assert [one.state for one in fp_broker.transactions()] == ["CompleteAbort"]
            with pytest.raises(KafkaException):
                producer.commit_transaction(10)
            fp_broker.assert_atomic([fp_topic], txn=lambda record: 1)
            assert fp_broker.records(fp_topic) == []
            assert len(fp_broker.records(fp_topic, "read_uncommitted")) == 1

        def test_b(fp_broker):
            assert abs(fp_broker.clock.now_ms() / 1000 - time.time()) < 60
    """).assert_outcomes(passed=2)


def test_the_faults_fixture_injects_errors_until_the_test_ends(run):
    run("""
        from confluent_kafka import Producer

        def write(fp_bootstrap, topic, **more):
            errors = []
            producer = Producer({"bootstrap.servers": fp_bootstrap, "log_level": 0, **more})
            producer.produce(topic, b"x", on_delivery=lambda error, message: errors.append(error))
            assert producer.flush(10) == 0
            return errors[0]

        def test_a(fp_faults, fp_bootstrap, fp_topic, fp_broker):
            fault = fp_faults.error("Produce", "MESSAGE_TOO_LARGE")
            assert write(fp_bootstrap, fp_topic).name() == "MSG_SIZE_TOO_LARGE"
            assert fault.fired == 1

        def test_b(fp_faults, fp_bootstrap, fp_topic, fp_broker):
            fault = fp_faults.disconnect("Produce", when="after_write").once()
            assert write(fp_bootstrap, fp_topic, **{"enable.idempotence": True}) is None
            assert fault.fired == 1
            assert len(fp_broker.records(fp_topic)) == 1
    """).assert_outcomes(passed=2)


def test_a_fault_that_did_not_happen_fails_the_test_that_asked_for_it(run):
    result = run("""
        def test_a(fp_faults):
            fp_faults.error("EndTxn", "COORDINATOR_NOT_AVAILABLE").once()

        def test_b(fp_broker):
            pass
    """)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*faults that did not happen*EndTxn*"])


def test_a_failed_test_shows_the_state_of_the_broker(run):
    result = run("""
        from confluent_kafka import Producer

        def test_a(fp_bootstrap, fp_topic, fp_broker):
            producer = Producer({"bootstrap.servers": fp_bootstrap, "transactional.id": "orders-1", "client.id": "me",
                                 "log_level": 0})
            producer.init_transactions(10)
            producer.begin_transaction()
            producer.produce(fp_topic, b"x")
            producer.flush(10)
            assert fp_broker.records(fp_topic) != []

        def test_b(fp_broker):
            fp_broker.pause()
            assert False
    """)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*fencepost at failure*",
            "*open transactions*",
            "*orders-1  Ongoing  pid*test_a*",
            "*test_a-*-0  0  0  1  blocked by a transaction*",
            "*InitProducerId v*me*",
            "*Produce v*me*",
            "*fencepost at failure*",
            "*it does not answer now*",
        ]
    )


def test_brokers_made_by_the_factory_fixture_stop_with_the_test(run):
    run("""
        import threading

        def test_a(fp_broker_factory, tmp_path):
            one, other = fp_broker_factory(num_partitions=3), fp_broker_factory(tmp_path / "data")
            assert one.bootstrap_servers != other.bootstrap_servers
            other.create_topic("t")
            other.restart()
            assert other.topics() == {"t": 1}

        def test_b():
            assert not [one for one in threading.enumerate() if one.name == "fencepost-broker"]
    """).assert_outcomes(passed=2)


def test_a_broker_halt_caused_by_the_test_does_not_fail_it(run):
    run("""
        import time

        def test_a(fp_broker_factory):
            broker = fp_broker_factory()
            broker.disk.fail_sync()
            try:
                broker.create_topic("t")
            except OSError:
                pass
            for _ in range(3_000):  # it halts a moment later if another sync than the topic's has failed
                if broker.halted is None:
                    time.sleep(0.01)
            assert broker.halted is not None
    """).assert_outcomes(passed=1)


def test_a_failing_plugin_assertion_names_the_wrong_records(run):
    run("""
        import pytest
        from confluent_kafka import Producer

        def write(bootstrap, topic, *values):
            producer = Producer({"bootstrap.servers": bootstrap})
            for value in values:
                producer.produce(topic, value, headers={"txn": b"1"})
            assert producer.flush(10) == 0

        def test_a(fp_broker, fp_bootstrap, fp_topics):
            source, good, bad = fp_topics(3)
            write(fp_bootstrap, source, b"1", b"2", b"3")
            write(fp_bootstrap, good, b"2", b"1", b"3")
            write(fp_bootstrap, bad, b"1", b"1", b"2", b"9")
            fp_broker.assert_exactly_once(source, good)
            with pytest.raises(AssertionError) as raised:
                fp_broker.assert_exactly_once(source, bad, key=lambda record: record.value)
            for text in ("lost 1: b'3'", "more than once 1: b'1'", "not from", "b'9'"):
                assert text in str(raised.value)
            fp_broker.assert_atomic([source, good], txn=lambda record: dict(record.headers)["txn"])
            with pytest.raises(AssertionError, match="visible more than once"):
                fp_broker.assert_atomic([bad], txn=lambda record: dict(record.headers)["txn"])
    """).assert_outcomes(passed=1)


def test_the_plugins_atomic_assertion_allows_equal_records_in_one_transaction(run):
    run("""
        import pytest
        from confluent_kafka import Producer

        def write(bootstrap, topic, *values, commit=True):
            producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
            producer.init_transactions(10)
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value)
            assert producer.flush(10) == 0
            (producer.commit_transaction if commit else producer.abort_transaction)(10)

        def test_a(fp_broker, fp_bootstrap, fp_topic):
            write(fp_bootstrap, fp_topic, b"1", b"1", commit=False)
            write(fp_bootstrap, fp_topic, b"1", b"1")
            fp_broker.assert_atomic([fp_topic], txn=lambda record: 1)
            write(fp_bootstrap, fp_topic, b"1", b"1")
            with pytest.raises(AssertionError, match="visible more than once"):
                fp_broker.assert_atomic([fp_topic], txn=lambda record: 1)

        def test_one_of_two_equal_records_is_missing(fp_broker, fp_bootstrap, fp_topics):
            first, second = fp_topics(2)
            write(fp_bootstrap, first, b"1")
            write(fp_bootstrap, second, b"1", b"1", commit=False)
            with pytest.raises(AssertionError, match="1 visible, 2 not"):
                fp_broker.assert_atomic([first, second], txn=lambda record: 1)
    """).assert_outcomes(passed=2)


def test_workers_of_xdist_have_brokers_of_their_own(run):
    result = run(
        """
        import pytest
        from confluent_kafka import Producer

        @pytest.mark.parametrize("number", range(8))
        def test_a(fp_broker, fp_bootstrap, fp_topic, number, worker_id):
            producer = Producer({"bootstrap.servers": fp_bootstrap})
            producer.produce(fp_topic, str(number).encode())
            assert producer.flush(10) == 0
            assert [record.value for record in fp_broker.records(fp_topic)] == [str(number).encode()]
            fp_broker.kill()
        """,
        "-n2",
        subprocess=True,
    )
    result.assert_outcomes(passed=8)


def test_with_an_external_broker_tests_that_kill_it_or_inject_faults_are_skipped(run):
    from fencepost.broker.embedded.broker import Broker

    with Broker() as elsewhere:
        result = run(
            WITH_CONFLUENT
            + """
    def test_kill(fp_broker):
        fp_broker.kill()

    def test_faults(fp_faults):
        raise AssertionError

    def test_clock(fp_clock):
        raise AssertionError

    def test_factory(fp_broker_factory):
        raise AssertionError

    def test_failing(fp_topic, fp_broker):
        assert fp_broker.topics() == {}
    """,
            "--fencepost-external",
            elsewhere.bootstrap_servers,
            "-rs",
        )
        assert elsewhere.inside(lambda inner: [name for name in inner.topics.by_name if name.startswith("test")]) == []
    # test_failing fails because its topic exists: the report of a failure must also describe an external broker.
    result.assert_outcomes(passed=1, skipped=4, failed=1)
    result.stdout.fnmatch_lines(["*fencepost at failure*", "*which runs elsewhere*", "*needs the embedded broker*"])


def test_the_plugin_imports_nothing_heavy_and_starts_nothing_before_a_fixture(pytester):
    pytester.makepyfile("""
        import sys, threading

        def test_a():
            heavy = ("fencepost.broker", "fencepost.client", "uvloop")
            assert [name for name in sys.modules if name.startswith(heavy)] == []
            assert threading.active_count() == 1
    """)
    pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:unraisableexception").assert_outcomes(passed=1)


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_async_client_fixtures_run_in_the_tests_event_loop_whatever_its_scope(run, mode):
    run(
        """
        import pytest

        @pytest.mark.asyncio(loop_scope="module")
        async def test_a(fp_consumer, fp_share_consumer, fp_producer, fp_txn_producer, fp_admin, fp_topic):
            await fp_producer.send_and_wait(fp_topic, b"42")
            assert (await fp_consumer.getone()).value == b"42"
            assert (await fp_share_consumer.getone()).value == b"42"

        @pytest.mark.asyncio
        async def test_b(fp_producer, fp_topic):
            await fp_producer.send_and_wait(fp_topic, b"43")

        @pytest.mark.asyncio(loop_scope="session")
        async def test_c(fp_producer, fp_topic):
            await fp_producer.send_and_wait(fp_topic, b"44")
        """,
        mode=mode,
    ).assert_outcomes(passed=3)


def test_without_pytest_asyncio_async_fixtures_name_the_missing_package(run):
    result = run("def test_a(fp_producer): pass", "-p", "no:asyncio", subprocess=True)
    result.stdout.fnmatch_lines(["*fp_producer needs pytest-asyncio*"])


def test_importing_the_plugin_imports_only_a_few_modules():
    script = (
        "import pytest, sys; before = set(sys.modules); import fencepost.testing.plugin; "
        "print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(name.startswith("fencepost") for name in done.stdout.split()), done.stdout
    assert len(done.stdout.split()) < 8
