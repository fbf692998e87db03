"""The simulated network beside the real one: the same protocol sees the same on both."""

import asyncio
import random

import pytest
from fencepost.effects.net import SystemNet
from fencepost.effects.simulated.loop import run
from fencepost.effects.simulated.net import SimulatedNet
from net_ends import End, ended, pair, settle


async def echo(net):
    client, server, _ = await pair(net, echo=True)
    client.transport.write(b"one ")
    client.transport.writelines([b"t", memoryview(b"wo"), bytearray(b"!")])
    await settle()
    client.transport.close()
    await settle()
    return client.received, client.events, server.events


async def server_closes_after_its_answer(net):
    client, server, _ = await pair(net)
    server.transport.write(b"x" * 200_000)
    server.transport.close()
    assert server.transport.is_closing()
    server.transport.write(b"ignored")
    await settle()
    return client.received, client.events, server.events


async def half_closed(net):
    client, server, _ = await pair(net, keep_open=True)
    client.transport.write(b"question")
    client.transport.write_eof()
    await settle()
    server.transport.write(b"answer")
    server.transport.close()
    await settle()
    return client.received, client.events, server.received, server.events


async def abort(net):
    client, server, _ = await pair(net)
    client.transport.abort()
    await settle()
    return client.events, server.events


async def closes_with_unread_bytes(net):
    client, server, _ = await pair(net)
    server.transport.pause_reading()
    client.transport.write(b"unread")
    await settle()
    server.transport.close()
    await settle()
    return client.events, server.events, server.received


async def writes_to_who_is_gone(net):
    client, server, _ = await pair(net, keep_open=True)
    server.transport.pause_reading()
    client.transport.abort()
    await settle()
    server.transport.write(b"to nobody")
    await settle()
    server.transport.write(b"again")
    await settle()
    return client.events, server.events


async def fills_the_buffers(net):
    client, server, _ = await pair(net)
    server.transport.pause_reading()
    sent = random.Random(1).randbytes(1 << 20) * 8
    client.transport.write(sent)
    await settle()
    assert client.transport.get_write_buffer_size() > 0
    assert client.events == ["made", "pause"]
    server.transport.resume_reading()
    for _ in range(100):
        await asyncio.sleep(0.01)
        if len(server.received) == len(sent):
            break
    assert server.received == sent
    assert client.transport.get_write_buffer_size() == 0
    return client.events


async def a_protocol_that_raises(net):
    class Broken(End):
        def data_received(self, data):
            raise ValueError("cannot")

    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    client, server, _ = await pair(net)
    server.transport.set_protocol(broken := Broken())
    client.transport.write(b"x")
    await settle()
    asyncio.get_running_loop().set_exception_handler(None)
    return [type(one).__name__ for one in reported], broken.events, client.events


async def nobody_listens(net):
    listener = await net.listen(End, "127.0.0.1", 0)
    listener.close()
    await listener.wait_closed()
    try:
        await net.connect(End, *listener.addresses[0])
    except OSError as error:
        return type(error).__name__


async def a_taken_port(net):
    listener = await net.listen(End, "127.0.0.1", 0)
    try:
        await net.listen(End, *listener.addresses[0])
    except OSError as error:
        return error.errno
    finally:
        listener.close()


@pytest.mark.parametrize(
    "scenario",
    [
        echo,
        server_closes_after_its_answer,
        half_closed,
        abort,
        closes_with_unread_bytes,
        writes_to_who_is_gone,
        fills_the_buffers,
        a_protocol_that_raises,
        nobody_listens,
        a_taken_port,
    ],
)
def test_each_scenario_gives_the_same_events_on_the_simulated_and_the_real_net(scenario):
    assert run(ended(scenario, SimulatedNet())) == asyncio.run(ended(scenario, SystemNet()))


def test_the_simulated_net_also_works_on_a_real_event_loop():
    assert asyncio.run(echo(SimulatedNet()))[0] == b"one two!"
