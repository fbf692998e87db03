"""Who coordinates what is looked up, kept, and looked up again once it may be another."""

import asyncio

import pytest
from client_world import run
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from fencepost.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from scripted_server import start_scripted

END = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)


def _coordinator_is(where: dict):
    def answer(line, request, version, number):
        node = where["node"]
        host, port = line.server.nodes[node]
        found = FindCoordinatorResponse.Coordinator(
            key=request.coordinator_keys[0], node_id=node, host=host, port=port, error_code=where.get("error", 0)
        )
        line.reply(FindCoordinatorRequest, version, number, FindCoordinatorResponse(coordinators=[found]))

    return answer


def test_a_moved_coordinator_is_looked_up_again_after_not_coordinator():
    """aiokafka did not do this after a failover (its notes of 0.12 to 0.14)."""

    async def main(world):
        servers = [await start_scripted(world.net, 9092), await start_scripted(world.net, 9093)]
        where = {"node": 1}
        for number, server in enumerate(servers, 1):
            server.nodes = {1: ("127.0.0.1", 9092), 2: ("127.0.0.1", 9093)}
            server.answers[FindCoordinatorRequest] = _coordinator_is(where)
            server.answers[EndTxnRequest] = _end_txn(number, where)
        cluster = await world.cluster()
        asked = await cluster.ask(("transaction", "t"), END)
        assert asked.error_code == 0
        where["node"] = 2
        await cluster.ask_until(("transaction", "t"), END, verdict=lambda each: each.error_code, timeout_ms=5_000)
        assert (await cluster.coordinator("transaction", "t")).node_id == 2
        for server in servers:
            server.close()

    run(main)


def _end_txn(number: int, where: dict):
    def answer(line, request, version, correlation_id):
        code = 0 if where["node"] == number else ErrorCode.NOT_COORDINATOR
        line.reply(EndTxnRequest, version, correlation_id, EndTxnResponse(error_code=code))

    return answer


@pytest.mark.parametrize("silent", [True, False])
def test_aiokafka_1134_a_silent_or_stopped_coordinator_is_looked_up_again(silent):
    async def main(world):
        servers = [await start_scripted(world.net, 9092), await start_scripted(world.net, 9093)]
        where = {"node": 1}
        for number, server in enumerate(servers, 1):
            server.nodes = {1: ("127.0.0.1", 9092), 2: ("127.0.0.1", 9093)}
            server.answers[FindCoordinatorRequest] = _coordinator_is(where)
            server.answers[EndTxnRequest] = _end_txn(number, where)
        cluster = await world.cluster("127.0.0.1:9093", request_timeout_ms=2_000)
        await cluster.coordinator("transaction", "t")
        if silent:
            servers[0].answers.clear()
        else:
            servers[0].close()
        where["node"] = 2
        await asyncio.sleep(0.01)
        await cluster.ask_until(("transaction", "t"), END, verdict=lambda each: each.error_code, timeout_ms=10_000)
        assert (await cluster.coordinator("transaction", "t")).node_id == 2
        for server in servers:
            server.close()

    run(main)


def test_a_coordinator_connection_is_separate_from_other_requests():
    """Otherwise a fetch that waits at the broker would delay each heartbeat and each commit."""

    async def main(world):
        await world.start_broker()
        cluster = await world.cluster()
        assert await cluster.coordinator("group", "g") is not await cluster.node(1)
        assert await cluster.coordinator("group", "g") is await cluster.coordinator("transaction", "t")

    run(main)
