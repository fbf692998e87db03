"""The proxy of these tests does what networks do, and what it is told."""

import pytest
from chaos_proxy import API_VERSIONS, METADATA, PRODUCE, REPLY, REQUEST, ChaosProxy
from fencepost.protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from old_client import Looker, connected
from produce_requests import answers, batch, produce
from served_broker import ServedBroker
from wire_client import Closed


@pytest.fixture(scope="module")
def address():
    with ServedBroker() as broker:
        yield f"127.0.0.1:{broker.port}"


@pytest.fixture
def proxy(address):
    with ChaosProxy(address) as running:
        yield running


def write(client, topic, value):
    return answers(client.call(produce(topic, batch(value=value)), 9))


def test_the_chaos_proxy_replaces_broker_addresses_in_responses_by_its_own(proxy):
    client = connected(proxy.bootstrap)
    (node,) = client.call(MetadataRequest(topics=[]), 9).brokers
    assert f"{node.host}:{node.port}" == proxy.bootstrap
    assert proxy.links[0].requests == [(API_VERSIONS, 3), (METADATA, 9)]
    client.close()


def test_a_produce_request_held_by_the_proxy_arrives_after_one_of_a_new_connection(address, proxy, name):
    with Looker(address) as look:
        look.topic(name)
        old, new = connected(proxy.bootstrap), connected(proxy.bootstrap)
        held = proxy.hold(PRODUCE, cut=True)
        with pytest.raises(Closed):
            write(old, name, b"early")
        assert write(new, name, b"later") == [(0, 0)]
        assert held.arrive() is not None
        assert look.all(name) == [b"later", b"early"]
        for client in (old, new):
            client.close()


def test_requests_sent_after_one_that_the_proxy_holds_are_answered_after_it(proxy, name):
    client = connected(proxy.bootstrap)
    held = proxy.hold(METADATA)
    client.send(MetadataRequest(topics=[]), 9)
    client.send(ApiVersionsRequest(), 3)
    assert held.caught().api == METADATA
    assert client.nothing_comes()
    held.release()
    assert type(client.receive()).__name__ == "MetadataResponse"
    assert type(client.receive()).__name__ == "ApiVersionsResponse"
    client.close()


@pytest.mark.parametrize(("side", "written"), [(REQUEST, []), (REPLY, [b"once"])], ids=["request", "reply"])
def test_the_chaos_proxy_cuts_connections_before_or_after_the_request(address, proxy, name, side, written):
    with Looker(address) as look:
        look.topic(name)
        client = connected(proxy.bootstrap)
        cut = proxy.cut(PRODUCE, side=side)
        with pytest.raises(Closed):
            write(client, name, b"once")
        assert cut.met == 1
        assert look.all(name) == written
        client.close()
