"""One connection: order, time, coalescing, and what a hostile or dying server can do to it."""

import asyncio

import pytest
from client_world import World, run
from fencepost.client.errors import BrokerUnreachableError, RequestTimedOutError
from fencepost.client.net.connection import Connection
from fencepost.client.net.opening import open_connection
from fencepost.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest
from fencepost.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from fencepost.protocol.messages.produce import ProduceRequest
from scripted_server import ScriptedServer

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
OK = HeartbeatResponse()


async def _open(world: World, **keywords) -> Connection:
    return await open_connection(("127.0.0.1", 9092), world.settings(**keywords), world.environment, None)


def _send(connection: Connection, timeout_ms: int = 1_000) -> asyncio.Future:
    return connection.send(HEARTBEAT, 4, timeout_ms=timeout_ms)


def _with_server(main, **more):
    async def within(world: World):
        server = ScriptedServer(world.net, **more)
        await server.listen()
        try:
            return await main(world, server)
        finally:
            server.close()

    return run(within)


def test_requests_of_one_loop_turn_are_sent_in_one_write():
    async def main(world, server):
        server.answers[HeartbeatRequest] = lambda line, request, version, number: line.reply(
            HeartbeatRequest, version, number, HeartbeatResponse(error_code=request.generation_id)
        )
        connection = await _open(world)
        chunks = []
        line = server.lines[0]
        received = line.data_received
        line.data_received = lambda chunk: (chunks.append(chunk), received(chunk))
        waiting = [
            connection.send(HeartbeatRequest(group_id="g", generation_id=i, member_id="m"), 4, timeout_ms=1_000)
            for i in range(50)
        ]
        assert [(await one).error_code for one in waiting] == list(range(50))
        assert len(chunks) == 1
        assert connection.in_flight == 0

    _with_server(main)


def test_a_wrong_correlation_id_closes_the_connection_and_fails_its_requests():
    async def main(world, server):
        connection = await _open(world)
        waiting = [_send(connection) for _ in range(3)]
        await asyncio.sleep(0.01)
        server.lines[0].reply(HeartbeatRequest, 4, 99, OK)
        for one in waiting:
            with pytest.raises(BrokerUnreachableError, match="correlation id 99") as caught:
                await one
            assert caught.value.sent
        assert connection.closed

    _with_server(main)


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(b"\xff\xff\xff\xff", id="a negative length"),
        pytest.param(b"\x7f\xff\xff\xff", id="a huge length"),
        pytest.param(b"\x00\x00\x00\x00", id="a length of nothing"),
        pytest.param(b"\x00\x00\x00\x02\x00\x00", id="no header"),
        pytest.param(b"\x00\x00\x00\x06\x00\x00\x00\x02\x00\xff", id="half a body"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="another protocol"),
    ],
)
def test_a_malformed_response_closes_its_connection_and_no_other(lie):
    async def main(world, server):
        bad, good = await _open(world), await _open(world)
        waiting = _send(bad)
        other = _send(good)
        await asyncio.sleep(0.01)
        server.lines[0].transport.write(lie)
        with pytest.raises(BrokerUnreachableError) as caught:
            await waiting
        assert caught.value.sent
        assert bad.closed
        server.lines[1].reply(HeartbeatRequest, 4, 2, OK)
        assert (await other).error_code == 0
        assert not good.closed

    _with_server(main)


def test_a_response_that_no_request_waits_for_closes_the_connection():
    async def main(world, server):
        connection = await _open(world)
        server.lines[0].reply(HeartbeatRequest, 4, 2, OK)
        await asyncio.sleep(0.01)
        assert connection.closed
        with pytest.raises(BrokerUnreachableError) as caught:
            await _send(connection)
        assert not caught.value.sent

    _with_server(main)


def test_a_connection_closed_within_a_response_leaves_the_request_unanswered():
    async def main(world, server):
        connection = await _open(world)
        waiting = _send(connection)
        await asyncio.sleep(0.01)
        server.lines[0].transport.write(b"\x00\x00\x00\x0a\x00\x00")
        server.lines[0].transport.close()
        with pytest.raises(BrokerUnreachableError) as caught:
            await waiting
        assert caught.value.sent

    _with_server(main)


def test_a_request_timeout_closes_the_connection_and_fails_its_other_requests():
    async def main(world, server):
        connection = await _open(world)
        patient, hasty = _send(connection, 9_000), _send(connection, 2_000)
        before = world.loop.time()
        with pytest.raises(RequestTimedOutError, match="did not answer Heartbeat in time"):
            await hasty
        assert 2 <= world.loop.time() - before < 2.1
        with pytest.raises(BrokerUnreachableError) as caught:
            await patient
        assert caught.value.sent
        assert connection.closed

    _with_server(main)


def test_the_timeout_of_an_answered_request_does_not_close_the_connection():
    async def main(world, server):
        server.answers[HeartbeatRequest] = lambda line, request, version, number: line.reply(
            HeartbeatRequest, version, number, OK
        )
        connection = await _open(world)
        for _ in range(5):
            await _send(connection, 1_000)
            await asyncio.sleep(0.7)
        assert not connection.closed

    _with_server(main)


def test_cancelling_one_request_does_not_disturb_others_of_its_connection():
    async def main(world, server):
        connection = await _open(world)
        first, second = asyncio.ensure_future(_wait(connection)), asyncio.ensure_future(_wait(connection))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0.01)
        for number in (2, 3):
            server.lines[0].reply(HeartbeatRequest, 4, number, OK)
        assert (await second).error_code == 0
        assert first.cancelled()
        assert not connection.closed

    async def _wait(connection):
        return await _send(connection)

    _with_server(main)


def test_a_connection_is_closed_after_connections_max_idle_ms_without_a_request():
    async def main(world, server):
        server.answers[HeartbeatRequest] = lambda line, request, version, number: line.reply(
            HeartbeatRequest, version, number, OK
        )
        connection = await _open(world, connections_max_idle_ms=10_000)
        for _ in range(4):
            await asyncio.sleep(8)
            await _send(connection)
        assert not connection.closed
        await asyncio.sleep(11)
        assert connection.closed
        assert connection.error is None

    _with_server(main)


def test_a_request_without_a_response_completes_at_once():
    async def main(world, server):
        connection = await _open(world)
        request = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1_000, topic_data=[])
        assert await connection.send(request, 9, timeout_ms=1_000, expects_reply=False) is None
        await asyncio.sleep(0.01)
        assert server.requests[-1][0] == "Produce"
        assert connection.in_flight == 0

    _with_server(main)


def test_closing_a_connection_fails_pending_requests_and_sends_nothing_more():
    async def main(world, server):
        connection = await _open(world)
        ended = []
        connection.on_lost.append(lambda one, error: ended.append(error))
        waiting = _send(connection)
        connection.close()
        connection.close()
        with pytest.raises(BrokerUnreachableError):
            await waiting
        await asyncio.sleep(0.1)
        assert [name for name, _, _ in server.requests] == ["ApiVersions"]
        assert ended == [None]

    _with_server(main)


@pytest.mark.parametrize(("known", "then"), [(2, 2), (None, 0)])
def test_an_unknown_apiversions_version_is_asked_again_in_the_brokers_version(known, then):
    """KIP-511: the error comes in the layout of version 0; before Kafka 2.4 with an empty list."""

    def answer(line, request, version, number):
        if version > (known or 0):
            own = [] if known is None else [ApiVersionsResponse.ApiKey(api_key=18, min_version=0, max_version=known)]
            line.reply(ApiVersionsRequest, 0, number, ApiVersionsResponse(error_code=35, api_keys=own))
        else:
            line.server.list_versions(line, request, version, number)

    async def main(world, server):
        server.answers[ApiVersionsRequest] = answer
        connection = await _open(world)
        assert [version for _, version, _ in server.requests] == [3, then]
        assert connection.version_of(MetadataRequest) == 13

    _with_server(main)


def test_features_are_ignored_if_finalized_features_epoch_is_minus_1():
    def answer(line, request, version, number):
        feature = ApiVersionsResponse.FinalizedFeature(
            name="transaction.version", max_version_level=2, min_version_level=2
        )
        key = ApiVersionsResponse.ApiKey(api_key=18, min_version=0, max_version=4)
        response = ApiVersionsResponse(api_keys=[key], finalized_features_epoch=-1, finalized_features=[feature])
        line.reply(ApiVersionsRequest, version, number, response)

    async def main(world, server):
        server.answers[ApiVersionsRequest] = answer
        connection = await _open(world)
        assert connection.features == {}

    _with_server(main)


def test_connecting_to_a_silent_or_closing_server_fails_at_its_timeout():
    async def main(world, server):
        server.answers.clear()
        before = world.loop.time()
        with pytest.raises(BrokerUnreachableError, match="3000 ms"):
            await _open(world, connect_timeout_ms=3_000)
        assert world.loop.time() - before < 3.1
        server.greeting = lambda line: line.transport.close()
        with pytest.raises(BrokerUnreachableError) as caught:
            await _open(world)
        assert "TLS" in caught.value.hint
        server.close()
        with pytest.raises(BrokerUnreachableError, match="nobody listens"):
            await _open(world)

    _with_server(main)


def test_a_cancelled_opening_leaves_no_connection():
    async def main(world, server):
        server.answers.clear()
        opening = asyncio.ensure_future(_open(world))
        await asyncio.sleep(0.1)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await asyncio.sleep(0.1)
        assert server.ended == 1

    _with_server(main)
