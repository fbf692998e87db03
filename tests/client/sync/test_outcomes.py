"""A commit that was not answered is resolved where its producer is: by the blocking error, never in another loop."""

import asyncio

import pytest
from fencepost.client.errors import CommitOutcomeUnknownError, IllegalStateError
from fencepost.client.producer.producer import Producer
from fencepost.testing.served import ObservedBroker

from fencepost import sync

HASTY = {"transactional_id": "x", "request_timeout_ms": 200, "max_block_ms": 400}


@pytest.fixture
def broker():
    with ObservedBroker() as running:
        yield running
        running.verify()


@pytest.mark.slow
def test_resolve_of_a_sync_commit_outcome_unknown_error_returns_committed(broker):
    with sync.Producer(broker.bootstrap_servers, **HASTY) as producer:
        fault = broker.faults.blackhole("EndTxn", when="after_write")
        tx = producer.transaction()
        with pytest.raises(sync.CommitOutcomeUnknownError) as unknown, tx:
            tx.send("t", b"a")
        assert tx.outcome == "unknown"
        assert unknown.value.hint.startswith("err.resolve()")
        broker.faults.remove(fault)
        assert unknown.value.resolve() == "committed"
        assert tx.outcome == "committed"
        assert [record.value for record in broker.records("t")] == [b"a"]


@pytest.mark.slow
def test_resolve_raises_when_it_is_called_in_another_event_loop(broker):
    async def main():
        async with Producer(broker.bootstrap_servers, **HASTY) as producer:
            fault = broker.faults.blackhole("EndTxn", when="after_write")
            with pytest.raises(CommitOutcomeUnknownError) as unknown:
                async with producer.transaction() as tx:
                    await tx.send("t", b"a")
            broker.faults.remove(fault)
            with pytest.raises(IllegalStateError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, unknown.value.resolve())
            assert await unknown.value.resolve() == "committed"

    asyncio.run(main())
