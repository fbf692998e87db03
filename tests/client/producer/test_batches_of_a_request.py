"""How many batches a sender puts into one request: no more than brokers take."""

import pytest
from fencepost.client.producer import sender
from fencepost.effects.simulated.loop import SimulatedLoop
from scripted_cluster import ScriptedCluster


def test_a_produce_request_has_at_most_as_many_batches_as_a_broker_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MAX_BATCHES", 2)
    loop = SimulatedLoop()
    cluster = ScriptedCluster(loop, leaders=(1, 1, 1, 2, 2))
    cluster.inside(lambda: [cluster.append(partition) for partition in range(5)])
    cluster.turn()
    sent = [(each.node_id, sorted(each.bytes)) for each in cluster.sent]
    assert sorted(sent) == [(1, [("t", 0), ("t", 1)]), (1, [("t", 2)]), (2, [("t", 3), ("t", 4)])]
    loop.close()
