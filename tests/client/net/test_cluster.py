"""The cluster as a client sees it: brokers that come, go and move, topics that appear."""

import asyncio
import traceback

import pytest
from client_world import BOOTSTRAP, run
from fencepost.client.errors import (
    BrokerUnreachableError,
    ClosedError,
    InvalidConfigurationError,
    KafkaError,
    RequestTimedOutError,
    UnknownTopicError,
)
from fencepost.client.net.cluster import Cluster
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.topics import CreateTopicsRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from scripted_server import start_scripted

INIT = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
END = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)


def _create(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000)


def test_a_client_connects_to_the_second_bootstrap_server_if_the_first_is_down():
    async def main(world):
        await world.start_broker()
        cluster = await world.cluster(f"127.0.0.1:1,{BOOTSTRAP}")
        assert set(cluster.metadata.brokers) == {1}

    run(main)


def test_the_bootstrap_connection_is_reused_for_its_broker():
    async def main(world):
        await world.start_broker()
        cluster = await world.cluster()
        assert cluster.ready(1) is await cluster.any_node() is await cluster.node(1)
        assert len(world.net.connections) == 1

    run(main)


def test_a_stopped_broker_is_tried_at_most_twice_a_second_and_found_again():
    async def main(world):
        await world.start_broker()
        cluster = await world.cluster()
        await world.stop_broker()
        failures = 0
        before = world.loop.time()
        while world.loop.time() < before + 20:
            with pytest.raises(BrokerUnreachableError):
                await cluster.ask(1, INIT)
            failures += 1
        assert 15 <= failures <= 40  # a second apart at the end
        await world.start_broker()
        response = await cluster.ask_until(1, INIT, verdict=lambda each: each.error_code, timeout_ms=5_000)
        assert response.error_code == 0

    run(main)


def test_a_broker_that_has_moved_to_another_port_is_found_by_the_metadata():
    async def main(world):
        first, second = await start_scripted(world.net, 9092), await start_scripted(world.net, 9093)
        first.nodes = second.nodes = nodes = {1: ("127.0.0.1", 9092), 2: ("127.0.0.1", 9093)}
        cluster = await world.cluster("127.0.0.1:9092,127.0.0.1:9093")
        assert (await cluster.node(1)).address[1] == 9092
        first.close()
        await asyncio.sleep(0.1)
        moved = await start_scripted(world.net, 9095)
        nodes[1] = ("127.0.0.1", 9095)
        moved.nodes = nodes
        response = await cluster.ask_until(
            1, MetadataRequest(topics=[]), verdict=lambda each: each.error_code, timeout_ms=10_000
        )
        assert response.error_code == 0
        assert (await cluster.node(1)).address[1] == 9095
        for server in (second, moved):
            server.close()

    run(main)


def test_the_bootstrap_servers_are_asked_again_when_no_known_broker_is_left():
    async def main(world):
        old = await start_scripted(world.net, 9095)
        old.nodes = {7: ("127.0.0.1", 9095)}
        old_bootstrap = await start_scripted(world.net, 9092)
        old_bootstrap.nodes = old.nodes
        cluster = await world.cluster()
        await cluster.node(7)
        old.close()
        new = await start_scripted(world.net, 9096)
        new.nodes = {8: ("127.0.0.1", 9096)}
        old_bootstrap.nodes = new.nodes
        for line in old_bootstrap.lines:
            line.transport.abort()
        await asyncio.sleep(3)
        assert set(cluster.metadata.brokers) == {8}
        for server in (old_bootstrap, new):
            server.close()

    run(main)


def test_waiting_for_a_topic_ends_when_it_is_created():
    async def main(world):
        await world.start_broker(auto_create_topics_enable=False)
        cluster, admin = await world.cluster(), await world.cluster()
        waiting = [asyncio.ensure_future(cluster.partitions_of("late", timeout_ms=30_000)) for _ in range(100)]
        await asyncio.sleep(5)
        assert not any(one.done() for one in waiting)
        await admin.ask("controller", _create("late"))
        assert await asyncio.gather(*waiting) == [3] * 100
        assert cluster.metadata.leader(("late", 2)) == 1
        assert cluster.metadata.topic_name(cluster.metadata.topic_id("late")) == "late"

    run(main)


def test_metadata_listeners_are_called_when_a_watched_topic_is_created():
    async def main(world):
        await world.start_broker()
        cluster, admin = await world.cluster(), await world.cluster()
        seen = []
        cluster.on_metadata.append(lambda: seen.append(cluster.metadata.partitions("late")))
        cluster.watch_topics(["late"])
        await asyncio.sleep(5)
        assert set(seen) == {None}, "to watch a topic does not create it"
        assert len(seen) < 12  # in 5 s
        await admin.ask("controller", _create("late"))
        await asyncio.sleep(1.5)
        assert seen[-1] == 3

    run(main)


def test_waiting_for_a_missing_topic_times_out_and_stops_asking():
    async def main(world):
        await world.start_broker(auto_create_topics_enable=False)
        cluster = await world.cluster()
        before = world.loop.time()
        with pytest.raises(UnknownTopicError, match="no topic 'gone'"):
            await cluster.partitions_of("gone", timeout_ms=3_000)
        assert world.loop.time() - before < 3.2
        await asyncio.sleep(2)  # what was under way then
        answers = []
        cluster.on_metadata.append(lambda: answers.append(world.loop.time()))
        await asyncio.sleep(60)
        assert not answers

    run(main)


def test_a_topic_name_that_is_not_valid_is_an_error_at_once():
    async def main(world):
        await world.start_broker()
        cluster = await world.cluster()
        with pytest.raises(KafkaError) as caught:
            await cluster.partitions_of("no/such name", timeout_ms=30_000)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert world.loop.time() < 1
        assert await cluster.partitions_of("a-good-one", timeout_ms=30_000) == 1

    run(main)


def test_a_topic_above_max_partitions_raises_policy_violation_with_a_hint():
    async def main(world):
        await world.start_broker(max_partitions=1)
        cluster = await world.cluster()
        assert await cluster.partitions_of("first", timeout_ms=30_000) == 1
        with pytest.raises(KafkaError) as caught:
            await cluster.partitions_of("second", timeout_ms=30_000)
        assert caught.value.code is ErrorCode.POLICY_VIOLATION
        assert "the broker's log names the limit" in caught.value.hint
        assert "max.partitions" in caught.value.hint

    run(main)


@pytest.mark.parametrize("error", [InvalidConfigurationError("no such mechanism"), BrokerUnreachableError("gone")])
def test_an_error_raised_to_several_waiters_has_the_traceback_of_one_wait(error):
    """One exception object is raised to all: its traceback must not grow with each waiter and keep all their frames."""

    async def main(world):
        await world.start_broker()
        cluster = await world.cluster()

        async def refresh():
            raise error

        async def reported() -> int:
            with pytest.raises(type(error)) as caught:
                await cluster.partitions_of("late", timeout_ms=500)
            assert caught.value is error
            return len(list(traceback.walk_tb(error.__traceback__)))

        cluster.refresh = refresh
        first, *others = await asyncio.gather(*(reported() for _ in range(5)))
        assert others == [first] * 4

    run(main)


def test_a_thousand_stale_metadata_reports_in_a_second_cause_at_most_15_requests():
    async def main(world):
        server = await start_scripted(world.net)
        cluster = await world.cluster()
        before = len(server.requests)
        for _ in range(1_000):
            cluster.stale(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            await asyncio.sleep(0.001)
        assert 1 <= len(server.requests) - before <= 15
        server.close()

    run(main)


def test_metadata_is_refreshed_periodically():
    async def main(world):
        server = await start_scripted(world.net)
        await world.cluster(metadata_max_age_ms=10_000)
        await asyncio.sleep(35)
        assert [name for name, _, _ in server.requests].count("Metadata") == 4
        server.close()

    run(main)


def test_rebootstrap_required_makes_the_client_ask_the_bootstrap_servers():
    def confused(line, request, version, number):
        answer = MetadataResponse(brokers=[], topics=[], error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        line.reply(MetadataRequest, version, number, answer)

    async def main(world):
        server = await start_scripted(world.net)
        cluster = await world.cluster()
        usual = server.answers[MetadataRequest]
        server.answers[MetadataRequest] = confused
        await cluster.refresh()
        assert cluster.metadata.brokers == {}
        server.answers[MetadataRequest] = usual
        await cluster.refresh()
        assert set(cluster.metadata.brokers) == {1}
        server.close()

    run(main)


def test_a_cluster_call_raises_a_permanent_error_at_once_a_retriable_at_its_deadline():
    async def main(world):
        await world.start_broker()
        cluster = await world.cluster()
        codes = iter([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.INVALID_REQUEST])
        with pytest.raises(KafkaError) as caught:
            await cluster.ask_until("any", INIT, verdict=lambda _: next(codes), timeout_ms=5_000)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        before = world.loop.time()
        with pytest.raises(RequestTimedOutError, match="2000 ms") as late:
            await cluster.ask_until(
                "any", lambda: INIT, verdict=lambda _: ErrorCode.CONCURRENT_TRANSACTIONS, timeout_ms=2_000
            )
        assert late.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert world.loop.time() - before <= 2

    run(main)


# ---- ends --------------------------------------------------------------------------------------------------------


def test_close_ends_pending_requests_at_once_if_the_broker_does_not_answer():
    async def main(world):
        server = await start_scripted(world.net)
        cluster = await world.cluster()
        server.answers.clear()
        asking = [
            asyncio.ensure_future(cluster.ask("any", INIT)),
            asyncio.ensure_future(cluster.coordinator("group", "g")),
            asyncio.ensure_future(cluster.partitions_of("orders", timeout_ms=60_000)),
            asyncio.ensure_future(cluster.node(1, "fetch")),
        ]
        await asyncio.sleep(0.1)
        before = world.loop.time()
        await cluster.close()
        await cluster.close()
        ended = await asyncio.gather(*asking, return_exceptions=True)
        # Requests end with their connection; who waits for metadata or for a connection is told of the close.
        assert [type(each) for each in ended] == [BrokerUnreachableError] * 2 + [ClosedError] * 2
        assert world.loop.time() - before < 0.1
        with pytest.raises(ClosedError):
            await cluster.start()
        server.close()

    run(main)


def test_cancelling_one_waiter_does_not_cancel_a_shared_connection_attempt():
    async def main(world):
        server = await start_scripted(world.net)
        world.net.network.delay_ms = (40, 60)
        cluster = await world.cluster()
        first = asyncio.ensure_future(cluster.node(1, "fetch"))
        second = asyncio.ensure_future(cluster.node(1, "fetch"))
        await asyncio.sleep(0.02)
        first.cancel()
        assert not (await second).closed
        assert first.cancelled()
        assert len(server.lines) == 2, "the one to the bootstrap server, and one for both calls"
        server.close()

    run(main)


def test_after_repeated_disconnects_a_client_waits_longer_before_it_reconnects():
    async def main(world):
        server = await start_scripted(world.net)
        cluster = await world.cluster()
        server.greeting = lambda line: line.transport.abort()
        for line in server.lines:
            line.transport.abort()
        await asyncio.sleep(20)
        assert len(server.lines) < 60  # with the first back-off, 100 ms, each time, it would be some 200
        server.greeting = None
        asked = MetadataRequest(topics=[])
        assert (await cluster.ask_until("any", asked, verdict=lambda _: 0, timeout_ms=5_000)).brokers
        server.close()

    run(main)


def test_a_cluster_client_behaves_the_same_in_two_runs_with_one_seed():
    def trace() -> list:
        async def main(world):
            world.net.network.delay_ms = (1, 20)
            await world.start_broker()
            cluster = Cluster(world.settings(), world.environment)
            world.clusters.append(cluster)
            await cluster.start()
            await cluster.partitions_of("orders", timeout_ms=5_000)
            await cluster.coordinator("group", "g")
            return [world.loop.time(), cluster.metadata.topic_id("orders"), cluster.metadata.cluster_id]

        return run(main, seed=7)

    assert trace() == trace()


def test_any_node_returns_a_busy_data_connection_and_never_that_of_a_coordinator():
    """A join of a group may wait at the broker, and what is sent after it on the same connection waits too."""

    async def main(world):
        await world.start_broker()
        cluster = await world.cluster()
        coordinator = await cluster.coordinator("group", "g")
        data = await cluster.node(1)
        assert coordinator is not data
        asked = asyncio.create_task(cluster.ask(1, MetadataRequest(topics=[])))
        await asyncio.sleep(0)
        assert data.in_flight > coordinator.in_flight
        assert await cluster.any_node() is data
        await asked
        data.close()
        assert await cluster.any_node() is await cluster.node(1), "a new one"

    run(main)


def test_a_client_waits_for_a_broker_that_is_starting():
    async def main(world):
        starting = asyncio.get_running_loop().create_task(_later(world, 2))
        cluster = await world.cluster()
        assert set(cluster.metadata.brokers) == {1}
        await starting

    run(main)


def test_a_bootstrap_connection_that_is_cut_is_made_again():
    async def main(world):
        server = await start_scripted(world.net)
        left = [1, 2, 3]

        def cut_three(line):
            if left:
                left.pop()
                line.transport.abort()

        server.greeting = cut_three
        await world.cluster()
        assert not left

    run(main)


@pytest.mark.parametrize(("connect_timeout_ms", "most_s"), [(10_000, 3), (500, 0.5)])
def test_unreachable_bootstrap_servers_raise_within_3_s_or_connect_timeout_ms(connect_timeout_ms, most_s):
    async def main(world):
        with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:9092"):
            await world.cluster(connect_timeout_ms=connect_timeout_ms)
        assert most_s / 2 < world.loop.time() < most_s

    run(main)


@pytest.mark.parametrize(("start_timeout_ms", "begins_after_s"), [(60_000, 40), (1_000, 0.5)])
def test_start_timeout_ms_is_how_long_a_client_waits_for_a_broker_that_is_down(start_timeout_ms, begins_after_s):
    async def main(world):
        starting = asyncio.create_task(_later(world, begins_after_s))
        await world.cluster(start_timeout_ms=start_timeout_ms, connect_timeout_ms=2_000)
        assert begins_after_s <= world.loop.time() < start_timeout_ms / 1000
        await starting

    run(main)


def test_a_client_stops_waiting_for_a_broker_after_start_timeout_ms():
    async def main(world):
        with pytest.raises(BrokerUnreachableError, match=r"127\.0\.0\.1:9092"):
            await world.cluster(start_timeout_ms=20_000)
        assert 15 < world.loop.time() < 20  # no attempt is begun that would end later

    run(main)


async def _later(world, seconds):
    await asyncio.sleep(seconds)
    await world.start_broker()
