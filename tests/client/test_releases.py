"""The client against brokers that list what Kafka's releases listed."""

import pytest
from capped_broker import RELEASES
from client_world import World, run
from fencepost.client.errors import UnsupportedVersionError
from fencepost.protocol.messages.cluster import ApiVersionsRequest, MetadataRequest
from fencepost.protocol.messages.fetch import FetchRequest
from fencepost.protocol.messages.groups import FindCoordinatorRequest
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest, ListTransactionsRequest

NAMES = {FindCoordinatorRequest: "FindCoordinator", InitProducerIdRequest: "InitProducerId", EndTxnRequest: "EndTxn"}
NAMES |= {MetadataRequest: "Metadata", ProduceRequest: "Produce", ApiVersionsRequest: "ApiVersions"}


@pytest.mark.parametrize("release", RELEASES)
def test_requests_use_the_highest_version_client_and_broker_support(release):
    async def main(world: World) -> None:
        await world.start_broker(release=release)
        cluster = await world.cluster()
        connection = await cluster.any_node()
        for request, name in NAMES.items():
            assert connection.version_of(request) == RELEASES[release][name], name
        assert connection.version_of(ProduceRequest, 7) == 7

    run(main)


@pytest.mark.requirement("S-56")
@pytest.mark.parametrize("release", RELEASES)
def test_topics_and_coordinators_are_found_on_every_release(release):
    async def main(world: World) -> None:
        await world.start_broker(release=release)
        cluster = await world.cluster()
        assert await cluster.partitions_of("orders", timeout_ms=5_000) == 1
        assert cluster.metadata.leader(("orders", 0)) == 1
        has_ids = RELEASES[release]["Metadata"] >= 10
        assert any(cluster.metadata.topic_id("orders")) == has_ids
        request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        for kind in ("transaction", "group"):
            assert (await cluster.coordinator(kind, "t")).node_id == 1
        response = await cluster.ask(("transaction", "t"), request)
        assert (response.error_code, response.producer_epoch) == (0, 0)

    run(main)


@pytest.mark.parametrize("release", RELEASES)
def test_the_transaction_version_is_read_from_the_brokers_finalized_features(release):
    async def main(world: World) -> None:
        await world.start_broker(release=release)
        connection = await (await world.cluster()).any_node()
        assert connection.features.get("transaction.version", 0) == (2 if release >= "4.0" else 0)

    run(main)


def test_an_api_that_a_release_lacks_raises_an_error_with_its_name():
    async def main(world: World) -> None:
        await world.start_broker(release="2.8")
        cluster = await world.cluster()
        with pytest.raises(UnsupportedVersionError, match="does not support ListTransactions") as caught:
            await cluster.ask("any", ListTransactionsRequest(state_filters=[], producer_id_filters=[]))
        assert "127.0.0.1:9092" in str(caught.value)
        assert caught.value.hint

    run(main)


def test_a_request_version_that_the_broker_dropped_raises_unsupported_version():
    async def main(world: World) -> None:
        await world.start_broker()
        connection = await (await world.cluster()).any_node()
        assert connection.version_of(InitProducerIdRequest, 2) == 2
        with pytest.raises(UnsupportedVersionError, match="no longer supports Fetch version 3"):
            connection.version_of(FetchRequest, 3)

    run(main)
