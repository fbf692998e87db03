"""The APIs that report about a broker what Kafka's own do not, through a whole broker."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from acl_client import guarded
from fencepost.broker.requests.exported_metrics import FAMILIES
from fencepost.broker.transactions.owners import LONGEST_NAME
from fencepost.protocol.apis import APIS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import ApiVersionsRequest
from fencepost.protocol.messages.monitoring import (
    COUNTER,
    HISTOGRAM,
    DescribeClientsRequest,
    DescribeMetricsRequest,
    DescribeTransactionOwnersRequest,
)
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from guarded_broker import Guarded
from produce_requests import batch, create, fetch, produce
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient
from txn_client import Txn

OK = ErrorCode.NONE


@pytest.fixture
def broker() -> Iterator[SimulatedBroker]:
    with SimulatedBroker() as broker:
        broker.ask(create("t", 2))
        yield broker


def clients(broker: SimulatedBroker) -> dict[str | None, tuple[int, int]]:
    """Return the number of connections and of requests of each client, by client id."""
    answer = broker.ask(DescribeClientsRequest())
    assert (answer.error_code, answer.left_out) == (OK, 0)
    return {each.client_id: (each.connections, each.requests) for each in answer.clients}


def exported(broker: SimulatedBroker) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the value of each metric, by name and labels; of a histogram, how many values it has counted."""
    answer = broker.ask(DescribeMetricsRequest())
    return {
        family.name: {
            tuple(each.labels): each.buckets[-1].count if family.kind == HISTOGRAM else each.value
            for each in family.samples
        }
        for family in answer.families
    }


def owners(broker: SimulatedBroker, *names: str) -> dict[str, tuple[int, str | None, bool]]:
    """Return (error code, client id, whether it is connected) of each transaction's owner, by transactional id."""
    answer = broker.ask(DescribeTransactionOwnersRequest(transactional_ids=list(names) or None))
    return {each.transactional_id: (each.error_code, each.client_id, each.connected) for each in answer.owners}


def test_describe_clients_counts_connections_of_one_client_together(broker: SimulatedBroker) -> None:
    one, two, other = (SimulatedClient(broker, name) for name in ("app", "app", "other"))
    for client in (one, one, two, other):
        client.ask(ApiVersionsRequest(client_software_name="lib", client_software_version="1.2"), 3)
    found = clients(broker)
    assert (found["app"], found["other"]) == ((2, 3), (1, 1))
    (app,) = [each for each in broker.ask(DescribeClientsRequest()).clients if each.client_id == "app"]
    assert (app.software, app.principal, app.idle_ms) == ("lib 1.2", "User:ANONYMOUS", 0)
    assert app.host
    assert app.listener
    assert app.bytes_in > 0 < app.bytes_out


def test_long_client_ids_and_software_names_are_truncated(broker: SimulatedBroker) -> None:
    client = SimulatedClient(broker, "long" + "x" * 30_000)
    client.ask(ApiVersionsRequest(client_software_name="lib" * 9_000, client_software_version="1"), 3)
    client.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000))
    name = "long" + "x" * (LONGEST_NAME - 4)
    (shown,) = [each for each in broker.ask(DescribeClientsRequest()).clients if each.client_id == name]
    assert len(shown.software) == LONGEST_NAME
    assert owners(broker, "t")["t"] == (OK, name, True)
    kept = broker.broker.transactions.owners.get("t")
    assert kept is not None
    assert len(kept.client_id or "") == len(kept.software) == LONGEST_NAME


def test_a_silent_client_is_shown_as_idle_and_a_disconnected_one_not_at_all(broker: SimulatedBroker) -> None:
    client = SimulatedClient(broker, "app")
    client.ask(ApiVersionsRequest(), 3)
    clients(broker)
    broker.wait(5)
    (app,) = [each for each in broker.ask(DescribeClientsRequest()).clients if each.client_id == "app"]
    assert app.idle_ms >= 5_000
    client.transport.close()
    broker.wait(1)
    assert "app" not in clients(broker)


def test_metrics_of_bytes_received_and_sent_include_closed_connections(broker: SimulatedBroker) -> None:
    client, metrics = SimulatedClient(broker, "app"), broker.broker.metrics
    client.ask(ApiVersionsRequest(), 3)
    before = metrics.bytes_in, metrics.bytes_out
    client.transport.close()
    broker.wait(1)
    assert (metrics.bytes_in, metrics.bytes_out) == before


def test_the_owner_of_a_transaction_is_the_client_that_last_initialized_its_id(broker: SimulatedBroker) -> None:
    """An owner whose client has disconnected is still named, as not connected."""
    first = Txn(broker, "x", client=SimulatedClient(broker, "first"))
    assert first.init() == OK
    first.write("t", b"v")
    assert owners(broker) == {"x": (OK, "first", True)}
    second = Txn(broker, "x", client=SimulatedClient(broker, "second"))
    assert second.init() == OK
    assert owners(broker) == {}, "no transaction is open"
    assert owners(broker, "x", "nobody") == {
        "x": (OK, "second", True),
        "nobody": (ErrorCode.RESOURCE_NOT_FOUND, None, False),
    }
    second.client.transport.close()
    broker.wait(1)
    assert owners(broker, "x") == {"x": (OK, "second", False)}


@pytest.mark.parametrize("version", [1, 2])
def test_after_a_restart_an_owner_is_known_from_its_first_request(broker: SimulatedBroker, version: int) -> None:
    before = Txn(broker, "x", version, client=SimulatedClient(broker, "app"))
    assert before.init() == OK
    before.write("t", b"v")
    with broker.again() as again:
        assert owners(again) == {}
        after = Txn(again, "x", version, client=SimulatedClient(again, "app"))
        after.goes_on_as(before.producer_id, before.epoch)
        after.sequences.update(before.sequences)
        assert after.end(True) == OK
        assert owners(again, "x") == {"x": (OK, "app", True)}


def test_the_owner_of_an_ephemeral_transactional_id_is_forgotten_after_its_commit(broker: SimulatedBroker) -> None:
    txn = Txn(broker, "fencepost.once.x")
    assert txn.init() == OK
    txn.write("t", b"v")
    assert txn.end(True) == OK
    assert len(broker.broker.transactions.owners) == 0


def test_the_owner_of_a_transaction_is_hidden_without_describe() -> None:
    with SimulatedBroker(guarded(super_users="User:root")) as broker:
        world = Guarded(broker)
        for name in ("mine", "hidden"):
            txn = Txn(broker, name, client=world.client)
            assert world.as_user("root", txn.init) == OK
            world.as_user("root", lambda txn=txn: txn.write("t", b"v"))  # type: ignore[misc]
        world.have("allow User:alice DESCRIBE TRANSACTIONAL_ID = mine")

        def ask(names: list[str] | None) -> dict[str, int]:
            answer = world.as_user(
                "alice", lambda: world.client.ask(DescribeTransactionOwnersRequest(transactional_ids=names))
            )
            return {"": answer.error_code} | {each.transactional_id: each.error_code for each in answer.owners}

        assert ask(None) == {"": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        world.have("allow User:alice DESCRIBE CLUSTER = kafka-cluster")
        assert ask(None) == {"": OK, "mine": OK}
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert ask(["mine", "hidden"]) == {"": OK, "mine": OK, "hidden": refused}


def test_metric_families_have_unique_names_and_only_counters_end_in_total() -> None:
    assert len({each.name for each in FAMILIES}) == len(FAMILIES)
    for each in FAMILIES:
        assert each.name.startswith("fencepost_")
        assert each.name.endswith("_total") == (each.kind == COUNTER), each.name
        assert (each.counted is not None) == (each.kind == HISTOGRAM), each.name


def test_records_and_bytes_produced_and_fetched_are_counted_since_the_start(broker: SimulatedBroker) -> None:
    """The size of the log is not a count: it continues after a restart."""
    for _ in range(3):
        broker.ask(produce("t", batch()))
    found = exported(broker)
    assert found["fencepost_produce_records_total"][("t",)] == 3
    size = found["fencepost_produce_bytes_total"][("t",)]
    assert size == found["fencepost_log_size_bytes"][("t",)] == 3 * len(batch())
    assert found["fencepost_fetch_bytes_total"][()] == 0
    broker.ask(fetch("t"), 12)
    assert exported(broker)["fencepost_fetch_bytes_total"][()] == size
    with broker.again() as again:
        again.ask(produce("t", batch()))
        found = exported(again)
        assert found["fencepost_produce_records_total"][("t",)] == 1
        assert found["fencepost_produce_bytes_total"][("t",)] == len(batch())
        assert found["fencepost_log_size_bytes"][("t",)] == size + len(batch())


def test_metrics_count_requests_by_api_and_errors_by_api_and_error_name(broker: SimulatedBroker) -> None:
    broker.ask(produce("t", batch()))
    broker.ask(produce("gone", batch()))
    found = exported(broker)
    assert found["fencepost_requests_total"][("Produce",)] == 2
    assert found["fencepost_requests_total"][("DescribeMetrics",)] == 1
    assert found["fencepost_request_errors_total"] == {("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1}
    broker.ask(InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000))  # refused as a whole
    assert ("InitProducerId", "INVALID_REQUEST") in exported(broker)["fencepost_request_errors_total"]


def test_metrics_count_journal_rounds_and_syncs(broker: SimulatedBroker) -> None:
    before = exported(broker)
    broker.ask(produce("t", batch()))
    after = exported(broker)
    for name in ("fencepost_fsync_duration_seconds", "fencepost_round_size_bytes"):
        assert after[name][()] > before[name][()]
    assert after["fencepost_journal_bytes"][()] > before["fencepost_journal_bytes"][()]


@pytest.mark.parametrize("version", [1, 2])
def test_transactions_are_counted_by_the_reason_of_their_end(broker: SimulatedBroker, version: int) -> None:
    """Durations, the oldest open one and refused requests of fenced producers are metrics, too."""
    txn = Txn(broker, "x", version)

    def begun() -> None:
        txn.write("t", b"v")

    assert txn.init(timeout_ms=1_000) == OK
    for commit in (True, False, True):
        begun()
        assert txn.end(commit) == OK
    begun()
    assert exported(broker)["fencepost_transactions"] == {("Ongoing",): 1}
    assert txn.init(timeout_ms=1_000) == OK
    begun()
    broker.wait(0.5)
    assert exported(broker)["fencepost_oldest_open_transaction_seconds"][()] >= 0.5
    broker.wait(15)
    found = exported(broker)
    assert found["fencepost_transactions_completed_total"] == {
        ("commit",): 2,
        ("abort",): 1,
        ("timeout",): 1,
        ("fenced",): 1,
        ("admin",): 0,
    }
    assert found["fencepost_transaction_duration_seconds"] == {(): 5}
    assert found["fencepost_oldest_open_transaction_seconds"][()] == 0
    assert sum(found["fencepost_producer_fenced_total"].values()) == 0
    assert txn.send("t", b"v") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert sum(exported(broker)["fencepost_producer_fenced_total"].values()) == 1


def test_a_transaction_is_counted_in_the_histogram_bucket_of_its_duration(broker: SimulatedBroker) -> None:
    txn = Txn(broker, "x", 1)
    assert txn.init() == OK
    for seconds in (0.0, 3.0):
        txn.write("t", b"v")
        broker.wait(seconds)
        assert txn.end(True) == OK
    (family,) = [
        each
        for each in broker.ask(DescribeMetricsRequest()).families
        if each.name == "fencepost_transaction_duration_seconds"
    ]
    (sample,) = family.samples
    assert 3 <= sample.value < 3.5
    assert [each.count for each in sample.buckets if each.bound in (2.048, 4.096)] == [1, 2]


def test_error_metrics_are_labelled_with_api_names() -> None:
    broker = Path(__file__).resolve().parents[3] / "broker"
    calls = [
        found
        for path in broker.rglob("*.py")
        for found in re.findall(r"metrics\.error\(([^,]+),", path.read_text())
        if found not in ("api", "name")
    ]
    assert len(calls) > 30  # the pattern finds most calls
    assert {name.strip('"') for name in calls} <= {api.name for api in APIS.values()}
