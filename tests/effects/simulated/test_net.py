"""The simulated network: its addresses, its delays, and what a test can do to it."""

import asyncio
import random

import pytest
from fencepost.effects.simulated.loop import run
from fencepost.effects.simulated.net import SimulatedNet
from hypothesis import given, settings
from hypothesis import strategies as st
from net_ends import End, pair, settle

# Addresses


def test_both_ends_of_a_simulated_connection_report_its_addresses():
    async def main():
        net = SimulatedNet(name="10.0.0.1")
        listener = await net.listen(End, "0.0.0.0", 9092)
        transport, _ = await net.host("10.0.0.2").connect(End, "10.0.0.1", 9092)
        assert listener.addresses == [("0.0.0.0", 9092)]
        assert transport.get_extra_info("peername") == ("10.0.0.1", 9092)
        assert transport.get_extra_info("sockname")[0] == "10.0.0.2"
        assert transport.get_extra_info("socket") is None
        assert transport.get_extra_info("else", 5) == 5
        server = net.connections[0].server
        assert server.get_extra_info("sockname") == ("10.0.0.1", 9092)
        assert server.get_extra_info("peername") == transport.get_extra_info("sockname")

    run(main())


def test_each_simulated_host_has_its_own_loopback():
    async def main():
        net = SimulatedNet(name="10.0.0.1")
        listener = await net.listen(End, "localhost", 0)
        assert [host for host, _ in listener.addresses] == ["127.0.0.1", "::1"]
        port = listener.addresses[0][1]
        for host in ("127.0.0.1", "::1", "localhost"):
            await net.connect(End, host, port)
        for source, host in ((net.host("10.0.0.2"), "127.0.0.1"), (net, "10.0.0.1")):
            with pytest.raises(ConnectionRefusedError):
                await source.connect(End, host, port)
        with pytest.raises(OSError):
            await net.listen(End, "::", port)
        with pytest.raises(OSError):
            await net.listen(End, "10.0.0.9", 0)
        assert len(net.connections) == 3

    run(main())


# Delays and order


def test_simulated_bytes_arrive_in_order_after_their_latency():
    async def main():
        net = SimulatedNet(seed=3)
        net.network.delay_ms = (5, 50)
        client, server, _ = await pair(net)
        started = asyncio.get_running_loop().time()
        for number in range(50):
            client.transport.write(b"%02d" % number)
        await asyncio.sleep(1)
        assert server.received == b"".join(b"%02d" % number for number in range(50))
        assert server.times[0] - started >= 0.005
        assert server.times[-1] - started <= 0.05
        return server.times

    assert run(main()) == run(main())


@pytest.mark.parametrize("delay_ms", [0.05, 1, 3.3, 50])
def test_a_constant_latency_lets_simulated_time_advance(delay_ms):
    """A timer that fires a rounding error too early must not be set again for the same moment, or time would stand
    still.
    """

    async def main():
        net = SimulatedNet()
        net.network.delay_ms = (delay_ms, delay_ms)
        client, server, connection = await pair(net)
        turns, turn = 0, connection.to_server._deliver

        def counted():
            nonlocal turns
            turns += 1
            assert turns < 1000
            turn()

        connection.to_server._deliver = counted
        for number in range(50):
            client.transport.write(b"%02d" % number)
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert len(server.received) == 100

    run(main())


def test_connecting_in_the_simulated_net_takes_two_latencies():
    async def main():
        net = SimulatedNet()
        net.network.delay_ms = (10, 10)
        listener = await net.listen(End, "127.0.0.1", 0)
        await net.connect(End, *listener.addresses[0])
        return asyncio.get_running_loop().time()

    assert run(main()) == pytest.approx(0.02)


def test_with_fragments_a_simulated_reader_gets_pieces_of_any_size():
    async def main():
        net = SimulatedNet(seed=5)
        net.network.fragments = True
        client, server, _ = await pair(net)
        sent = random.Random(2).randbytes(200_000)
        client.transport.write(sent)
        await asyncio.sleep(1)
        assert server.received == sent
        sizes = {len(chunk) for chunk in server.chunks}
        assert min(sizes) < 20
        assert max(sizes) > 10_000

    run(main())


STEPS = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 5000)),
    st.tuples(st.just("sleep"), st.integers(0, 30)),
    st.sampled_from([("pause",), ("resume",), ("hold",), ("release",)]),
)


@given(st.lists(STEPS, max_size=30), st.integers(0, 1000), st.booleans(), st.sampled_from([200, 2000, 100_000]))
@settings(max_examples=40)
def test_the_simulated_net_neither_loses_nor_duplicates_nor_reorders_bytes(steps, seed, fragments, capacity_bytes):
    async def main():
        net = SimulatedNet(seed=seed)
        net.network.delay_ms, net.network.fragments = (0, 10), fragments
        net.network.capacity_bytes = capacity_bytes
        client, server, connection = await pair(net)
        client.transport.set_write_buffer_limits(high=3000)
        sent = b""
        for number, (kind, *size) in enumerate(steps):
            match kind:
                case "write":
                    sent += (chunk := bytes([number]) * size[0])
                    client.transport.write(chunk)
                case "sleep":
                    await asyncio.sleep(size[0] / 1000)
                case "pause" | "resume":
                    getattr(server.transport, f"{kind}_reading")()
                case _:
                    getattr(connection.to_server, kind)()
            assert sent.startswith(server.received)
        server.transport.resume_reading()
        connection.release()
        client.transport.close()
        await asyncio.sleep(len(sent) / capacity_bytes + 1)
        assert server.received == sent
        assert client.events[-1] == server.events[-1] == "lost"
        flow = [event for event in client.events if event in ("pause", "resume")]
        assert flow == ["pause", "resume"] * (len(flow) // 2)

    run(main(), seed=seed)


# What can go wrong


def test_bytes_held_back_in_the_simulated_net_arrive_when_released():
    async def main():
        client, server, connection = await pair(SimulatedNet(), echo=True)
        connection.to_client.hold()
        client.transport.write(b"x")
        await settle()
        assert (server.received, client.received) == (b"x", b"")
        connection.release()
        await settle()
        assert client.received == b"x"
        connection.hold()
        client.transport.write(b"y")
        client.transport.close()
        await settle()
        assert server.received == b"x"
        connection.release()
        await settle()
        assert server.received == b"xy"
        assert server.events == ["made", "eof", "lost"]

    run(main())


def test_cutting_a_simulated_connection_resets_both_ends_and_loses_bytes_in_flight():
    async def main():
        net = SimulatedNet()
        net.network.delay_ms = (5, 5)
        client, server, connection = await pair(net)
        await settle()
        client.transport.write(b"never")
        connection.cut()
        await settle()
        assert server.received == b""
        assert client.events == server.events == ["made", "lost ConnectionResetError"]
        assert net.connections == []

    run(main())


def test_a_connection_cut_with_tell_client_is_reset_at_the_client_only():
    async def main():
        client, server, connection = await pair(SimulatedNet())
        connection.cut(tell=("client",))
        await settle()
        assert client.events == ["made", "lost ConnectionResetError"]
        server.transport.write(b"x" * 1_000_000)
        await settle()
        assert server.events == ["made", "pause"]
        connection.tell("server")
        await settle()
        assert server.events == ["made", "pause", "lost ConnectionResetError"]

    run(main())


@pytest.mark.parametrize("size", [0, 1, 5, 9])
def test_a_simulated_connection_may_be_cut_at_any_byte(size):
    async def main():
        client, server, connection = await pair(SimulatedNet())
        connection.cut_after("server", size)
        client.transport.write(b"01234")
        client.transport.write(b"56789")
        await settle()
        assert server.received == b"0123456789"[:size]
        assert server.events == client.events == ["made", "lost ConnectionResetError"]

    run(main())


def test_tests_can_intercept_every_new_simulated_connection():
    async def main():
        net = SimulatedNet()
        net.network.on_connect = lambda connection: connection.cut_after("client", 2)
        client, server, _ = await pair(net)
        server.transport.write(b"answer")
        await settle()
        assert client.received == b"an"

    run(main())


def test_killing_a_simulated_process_closes_its_connections_at_the_other_end_only():
    async def main():
        net = SimulatedNet()
        other = net.host("127.0.0.1")
        servers = []
        listener = await net.listen(lambda: servers.append(End()) or servers[-1], "127.0.0.1", 0)
        _, client = await other.connect(End, *listener.addresses[0])
        await settle()
        net.kill()
        await settle()
        assert client.events == ["made", "eof", "lost"]
        assert servers[0].events == ["made"]
        with pytest.raises(ConnectionRefusedError):
            await other.connect(End, *listener.addresses[0])
        again = await other.listen(End, *listener.addresses[0])
        assert again.addresses == listener.addresses

    run(main())


def test_connect_fails_when_the_connection_is_cut_before_it_is_made():
    async def main():
        net = SimulatedNet()
        net.network.delay_ms = (5, 5)
        listener = await net.listen(End, "127.0.0.1", 0)
        connecting = asyncio.ensure_future(net.connect(End, *listener.addresses[0]))
        await asyncio.sleep(0.007)
        net.connections[0].cut()
        with pytest.raises(ConnectionResetError):
            await connecting

    run(main())


def test_a_simulated_connect_that_is_cancelled_closes_its_connection_at_both_ends():
    async def main():
        net = SimulatedNet()
        net.network.delay_ms = (5, 5)
        servers = []
        listener = await net.listen(lambda: servers.append(End()) or servers[-1], "127.0.0.1", 0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(net.connect(End, *listener.addresses[0]), 0.007)
        await settle()
        assert servers[0].events == ["made", "eof", "lost"]
        assert net.connections == []

    run(main())


def test_a_simulated_transport_obeys_its_write_buffer_limits():
    async def main():
        net = SimulatedNet()
        net.network.capacity_bytes = 1000
        client, server, _ = await pair(net)
        client.transport.set_write_buffer_limits(high=500, low=100)
        assert client.transport.get_write_buffer_limits() == (100, 500)
        server.transport.pause_reading()
        assert not server.transport.is_reading()
        client.transport.write(b"x" * 1500)
        await settle()
        assert client.events == ["made"]
        client.transport.write(b"x")
        assert client.events == ["made", "pause"]
        assert client.transport.get_write_buffer_size() == 501
        with pytest.raises(ValueError):
            client.transport.set_write_buffer_limits(high=1, low=2)
        client.transport.abort()
        await settle()
        server.transport.resume_reading()
        await settle()
        assert len(server.received) == 1000

    run(main())


def test_asyncio_streams_work_over_the_simulated_net():
    async def main():
        net = SimulatedNet(seed=1)
        net.network.fragments = True

        async def answer(reader, writer):
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()
            await writer.wait_closed()

        loop = asyncio.get_running_loop()
        factory = lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), answer)  # noqa: E731
        listener = await net.listen(factory, "127.0.0.1", 0)
        reader = asyncio.StreamReader()
        transport, protocol = await net.connect(lambda: asyncio.StreamReaderProtocol(reader), *listener.addresses[0])
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        for text in (b"one\n", b"two" * 10_000 + b"\n"):
            writer.write(text)
            assert await reader.readline() == text.upper()
        writer.close()
        await writer.wait_closed()
        await settle()
        assert net.connections == []

    run(main())
