"""/openapi.json against what is served: every route is in it, and no answer is one that it does not allow."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from console_client import ConsoleClient, console_of
from fencepost.console.serving.openapi import document, schemas
from fencepost.console.serving.table import routes
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS
from served_broker import ServedBroker

schemathesis.checks.load_all_checks()

GROUP, SHARE_GROUP, TOPIC, TRANSACTION = "readers", "workers", "orders", "holder"
EXAMPLES = (2, pytest.param(25, marks=pytest.mark.long))  # requests for each operation
NOT_ASKED = ["/v1/events"]  # it does not end


class _Served:
    """A console in a thread of its own, because schemathesis blocks the thread that it runs in."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    async def _run(self) -> None:
        self._end = asyncio.Event()
        async with console_of(self._bootstrap) as client:
            self.base = client.base
            self.cluster = (await client.get("/v3/clusters"))["data"][0]["cluster_id"]
            self._ready.set()
            await self._end.wait()

    def __enter__(self) -> "_Served":
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
        self._loop.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker(group_initial_rebalance_delay_ms=0) as served:
        at = {"bootstrap.servers": f"127.0.0.1:{served.port}"}
        producer = Producer({**at, "transactional.id": TRANSACTION})
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(TOPIC, b"v", b"k", partition=0)
        assert producer.flush(10) == 0
        consumer = Consumer({**at, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
        consumer.close()
        with ShareConsumer({**at, "group.id": SHARE_GROUP}) as worker:
            worker.subscribe([TOPIC])
            worker.poll(1)
        yield served


@pytest.fixture(scope="module")
def served(broker: ServedBroker) -> Iterator[_Served]:
    with _Served(f"127.0.0.1:{broker.port}") as found:
        yield found


def test_every_json_schema_named_by_a_route_exists_and_is_valid() -> None:
    known = schemas()
    for route in routes():
        is_media_type = "/" in route.answer
        assert is_media_type or not route.answer or route.answer in known, route
    for schema in known.values():
        jsonschema_rs.meta.validate(schema)


def test_no_two_openapi_operations_have_the_same_name() -> None:
    paths = document(routes(), "1", "cookie")["paths"]
    names = [operation["operationId"] for operations in paths.values() for operation in operations.values()]
    assert len(set(names)) == len(names)


async def test_answers_for_existing_resources_match_the_openapi_schema(broker: ServedBroker) -> None:
    """The paths name a topic, a group and others that exist; the requests that schemathesis makes up do not."""
    async with console_of(f"127.0.0.1:{broker.port}") as client:
        described = await client.get("/openapi.json")
        names = await _names(client)
        asked = 0
        for path, operations in described["paths"].items():
            if "get" not in operations or path in NOT_ASKED or "consumer_id" in path:  # the group has no member
                continue
            ((media_type, content),) = operations["get"]["responses"]["200"]["content"].items()
            found = await client.get(path.format(**names))
            if media_type == "application/json":
                whole = {**content["schema"], "components": described["components"]}
                jsonschema_rs.validate(whole, found)
                asked += 1
        assert asked > 20, "the loop has skipped paths that it should ask for"


async def _names(client: ConsoleClient) -> dict[str, Any]:
    cluster = (await client.get("/v3/clusters"))["data"][0]["cluster_id"]
    return {
        "cluster_id": cluster,
        "broker_id": 1,
        "topic_name": TOPIC,
        "partition_id": 0,
        "name": "retention.ms",
        "consumer_group_id": GROUP,
        "share_group_id": SHARE_GROUP,
        "transactional_id": TRANSACTION,
        "offset": 0,
        "part": "value",
    }


@pytest.mark.slow
@pytest.mark.parametrize("examples", EXAMPLES)
def test_schemathesis_finds_no_answer_that_the_document_does_not_allow(served: _Served, examples: int) -> None:
    schema = schemathesis.openapi.from_url(f"{served.base}/openapi.json")
    checks = [each for each in CHECKS.get_all() if each.__name__ in CHECKED]
    assert len(checks) == len(CHECKED)
    operations = [each.ok() for each in schema.get_all_operations()]
    found = {(each.method.upper(), each.path) for each in operations}
    assert found == {(each.method, each.path) for each in routes()} - {("GET", "/openapi.json")}
    refusing = {(each.method, each.path) for each in routes() if each.query or each.body}
    for operation in operations:
        if operation.path not in NOT_ASKED:
            _try(operation, served, checks, GenerationMode.POSITIVE, examples)
            if (operation.method.upper(), operation.path) in refusing:
                _try(operation, served, checks, GenerationMode.NEGATIVE, examples)


CHECKED = {
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
}


def _try(operation: Any, served: _Served, checks: list[Any], mode: GenerationMode, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        if mode is GenerationMode.POSITIVE and "cluster_id" in (case.path_parameters or {}):
            case.path_parameters["cluster_id"] = served.cluster
        case.call_and_validate(checks=checks, timeout=20)

    check()
