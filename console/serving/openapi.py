"""The OpenAPI document of the console, made from the table of routes. Pure.

The rule: the document has the same paths, parameters and bodies that the application checks. For answers it has a name
and a type for every field that is always there, and a test compares real answers with it. Further fields may be added:
readers must ignore them. Source: OpenAPI 3.1.
"""

from collections.abc import Iterable
from typing import Any

from ..http.guard import CSRF_HEADER
from ..http.parameters import LONGEST_NAME
from ..http.schemas import FLAG, NUMBER, NUMBER_OR_NULL, TEXT, TEXT_OR_NULL, fields, list_of, or_null
from ..routes import CHANGE, OPEN, Route

_NUMBERS = {"partition_id", "broker_id", "offset"}
_TEXTS = {"transactional_id", "consumer_group_id", "share_group_id"}
_LINK = fields({"related": TEXT})
_METADATA = fields({"self": TEXT, "resource_name": TEXT})
_LIST_METADATA = fields({"self": TEXT, "next": TEXT_OR_NULL})
_PLACE = {"topic_name": TEXT, "partition_id": NUMBER}
_OFFSETS = dict.fromkeys(("log_start_offset", "last_stable_offset", "high_watermark"), NUMBER_OR_NULL)
_PREPARED = or_null(fields({"sink": TEXT, "batch": NUMBER, "query": TEXT_OR_NULL, "held": FLAG}))
_SHARE = {"type": ["number", "null"]}


def _item(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of one item in Confluent's shape, with these properties."""
    return fields({"kind": TEXT, "metadata": _METADATA, "cluster_id": TEXT, **properties})


_CONFIG = {"name": TEXT, "value": TEXT_OR_NULL, "is_default": FLAG, "is_read_only": FLAG, "is_sensitive": FLAG}
_LAG_SUMS = {
    "to_stable": NUMBER_OR_NULL,
    "to_high_watermark": NUMBER,
    "partitions": NUMBER,
    "blocked_partitions": NUMBER,
}
_NOT_ALWAYS = ("producer_epoch", "coordinator_id", "timeout_ms", "started_ms", "age_ms", "partitions_count")
_TRANSACTION = {
    "transactional_id": TEXT,
    "transaction_id": TEXT_OR_NULL,
    "state": TEXT,
    "is_open": FLAG,
    "producer_id": NUMBER,
    **dict.fromkeys(_NOT_ALWAYS, NUMBER_OR_NULL),
    "timeout_share": _SHARE,
    "partitions": list_of(fields(_PLACE)),
    "prepared": _PREPARED,
    "blocks": or_null(fields({"partitions": NUMBER, "records": NUMBER, "groups": NUMBER})),
}
_BLOCKED = {
    **_PLACE,
    **dict.fromkeys(("transactional_id", "state"), TEXT_OR_NULL),
    **dict.fromkeys(("producer_id", "producer_epoch", "start_offset", "waiting"), NUMBER),
    **dict.fromkeys(("last_stable_offset", "high_watermark"), NUMBER),
    **dict.fromkeys(("coordinator_id", "started_ms", "age_ms", "timeout_ms"), NUMBER_OR_NULL),
    "timeout_share": _SHARE,
    "hangs": FLAG,
    "sentence": TEXT,
    "also_in": list_of(fields(_PLACE)),
    "also_in_count": NUMBER,
    "groups_count": NUMBER,
    "groups": list_of(
        fields({"consumer_group_id": TEXT, "current_offset": NUMBER, "lag_to_stable": NUMBER, "would_wait": FLAG})
    ),
    "prepared": _PREPARED,
}
_COUNTED = ("topics", "partitions", "groups", "transactions", "open_transactions", "blocked_partitions", "held_groups")
_COUNTS = dict.fromkeys((*_COUNTED, "retained_records", "held_records"), NUMBER)
_ITEMS = {
    "Cluster": _item({"brokers": _LINK, "topics": _LINK, "consumer_groups": _LINK, "controller": or_null(_LINK)}),
    "Broker": _item({"broker_id": NUMBER, "host": TEXT, "port": NUMBER, "rack": TEXT_OR_NULL, "configs": _LINK}),
    "Config": _item({**_CONFIG, "source": TEXT, "synonyms": {"type": "array"}}),
    "Topic": _item(
        {
            "topic_name": TEXT,
            "is_internal": FLAG,
            "replication_factor": NUMBER,
            "partitions_count": NUMBER,
            "partitions": _LINK,
            "configs": _LINK,
            "offsets": or_null(fields({"retained": NUMBER, "held": NUMBER, "blocked_partitions": NUMBER})),
        }
    ),
    "Partition": _item(
        {
            **_PLACE,
            **_OFFSETS,
            "blocked": FLAG,
            "leader": or_null(_LINK),
            "leader_id": NUMBER_OR_NULL,
            "replica_ids": list_of(NUMBER),
            "isr_ids": list_of(NUMBER),
        }
    ),
    "Producer": _item(
        {
            **dict.fromkeys(("producer_id", "producer_epoch", "last_sequence", "last_timestamp_ms"), NUMBER),
            "coordinator_epoch": NUMBER,
            "transaction_start_offset": NUMBER_OR_NULL,
            "transactional_id": TEXT_OR_NULL,
        }
    ),
    "ConsumerGroup": _item(
        {
            **dict.fromkeys(("consumer_group_id", "state", "partition_assignor", "protocol_type"), TEXT),
            "group_type": TEXT,
            "is_simple": FLAG,
            "members": NUMBER,
            "offsets_held": FLAG,
            "lag": or_null(fields(_LAG_SUMS)),
            **dict.fromkeys(("coordinator", "lag_summary"), or_null(_LINK)),
            **dict.fromkeys(("consumers", "lags"), _LINK),
        }
    ),
    "Consumer": _item(
        {
            **dict.fromkeys(("consumer_group_id", "consumer_id", "client_id", "client_host"), TEXT),
            "instance_id": TEXT_OR_NULL,
            "assignments": list_of(fields(_PLACE)),
        }
    ),
    "ConsumerLag": _item(
        {
            **_PLACE,
            **dict.fromkeys(("current_offset", "log_end_offset", "lag", "last_stable_offset"), NUMBER),
            "lag_to_stable": NUMBER,
            "blocked": FLAG,
            **dict.fromkeys(("consumer_group_id", "consumer_id", "client_id"), TEXT),
            "instance_id": TEXT_OR_NULL,
        }
    ),
    "Transaction": _item(_TRANSACTION),
    "ShareGroup": _item(
        {
            **dict.fromkeys(("share_group_id", "state", "assignor"), TEXT),
            "members": NUMBER,
            **dict.fromkeys(("coordinator", "consumers", "partitions"), _LINK),
        }
    ),
    "ShareGroupConsumer": _item(
        {
            **dict.fromkeys(("share_group_id", "consumer_id", "client_id", "client_host"), TEXT),
            "assignments": list_of(fields(_PLACE)),
        }
    ),
    "ShareGroupPartition": _item(
        {
            "share_group_id": TEXT,
            **_PLACE,
            "start_offset": NUMBER,
            **dict.fromkeys(("lag", "window", "window_limit", "pending"), NUMBER_OR_NULL),
            "held_by_transaction": FLAG,
            "pending_ranges": list_of(
                fields(
                    {
                        **dict.fromkeys(("first_offset", "last_offset", "producer_id"), NUMBER),
                        "transactional_id": TEXT_OR_NULL,
                        "member_id": TEXT,
                    }
                )
            ),
        }
    ),
}
_LISTS = {
    **{f"{name}List": name for name in _ITEMS},
    "BlockedList": "BlockedPartition",
    "HangingList": "HangingTransaction",
    "ClientList": "Client",
}
_OTHERS = {
    "Problem": fields({"error_code": NUMBER, "message": TEXT, "hint": TEXT_OR_NULL}),
    "Health": fields({"status": TEXT}),
    "Readiness": fields({"ready": FLAG, "reasons": list_of(TEXT)}),
    "Session": fields(
        {
            **dict.fromkeys(("login_required", "logged_in", "changes_allowed"), FLAG),
            **dict.fromkeys(("csrf_token", "changes_hint", "cluster_id", "bootstrap"), TEXT_OR_NULL),
            "version": TEXT,
        }
    ),
    "Snapshot": fields(
        {
            "at_ms": NUMBER,
            "sequence": NUMBER,
            "id": TEXT,
            "reachable": FLAG,
            "problem": or_null(fields({"message": TEXT, "hint": TEXT_OR_NULL})),
            "cluster": or_null(
                fields({"cluster_id": TEXT_OR_NULL, "fencepost": FLAG, "fencepost_version": TEXT_OR_NULL})
            ),
            "counts": or_null(fields({**_COUNTS, "oldest_open_ms": NUMBER_OR_NULL, "transaction_states": {}})),
            "open_transactions": list_of(fields({"kind": TEXT, **_TRANSACTION})),
            "blockers": list_of(fields({"kind": TEXT, **_BLOCKED})),
            "blockers_complete": FLAG,
            "alarms": list_of({"type": "object", "required": ["kind", "sentence"]}),
            "recent": {"type": "array"},
            "events_from": {"type": "string", "enum": ["log", "poll"]},
            "missing": list_of(TEXT),
        }
    ),
    "BlockedPartition": fields({"kind": TEXT, **_BLOCKED}),
    "HangingTransaction": fields(
        {
            "kind": TEXT,
            **_PLACE,
            **dict.fromkeys(("start_offset", "producer_id", "producer_epoch", "last_timestamp_ms"), NUMBER),
        }
    ),
    "Client": fields(
        {
            "kind": TEXT,
            "client_id": TEXT_OR_NULL,
            **dict.fromkeys(("software", "host", "listener", "principal"), TEXT),
            **dict.fromkeys(("connections", "bytes_in", "bytes_out", "requests", "idle_ms"), NUMBER),
        }
    ),
    "ConsumerGroupLagSummary": _item(
        {
            **dict.fromkeys(("consumer_group_id", "max_lag_topic_name", "max_lag_consumer_id"), TEXT),
            "max_lag_partition_id": NUMBER_OR_NULL,
            **dict.fromkeys(("max_lag", "total_lag", "total_lag_to_stable"), NUMBER),
        }
    ),
    "Change": fields(
        {
            "kind": TEXT,
            "done": {"type": "string", "enum": ["aborted", "fenced"]},
            "transactional_id": TEXT_OR_NULL,
            "producer_id": NUMBER,
            "next_epoch": NUMBER_OR_NULL,
            "message": TEXT,
        }
    ),
    "RecordPage": fields({"kind": TEXT, **_PLACE, "next_offset": NUMBER, "data": {"type": "array"}}),
    "Timeline": fields({"kind": TEXT, **_PLACE, "next_offset": NUMBER, "blocks": {"type": "array"}}),
    "OpenApi": {"type": "object"},
}


def schemas() -> dict[str, Any]:
    """Return every schema of the document by its name."""
    lists = {
        name: fields(
            {
                "kind": TEXT,
                "metadata": _LIST_METADATA,
                "data": list_of({"$ref": f"#/components/schemas/{of}"}),
                "total": NUMBER,
            }
        )
        for name, of in _LISTS.items()
    }
    return {**_ITEMS, **lists, **_OTHERS}


def document(routes: Iterable[Route], version: str, cookie: str) -> dict[str, Any]:
    """Return the OpenAPI document of these routes as JSON. cookie: the name of the session's cookie."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fencepost console",
            "version": version,
            "description": "Confluent's REST v3 shapes, read-only, and transactions in the same style.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "cookie": {"type": "apiKey", "in": "cookie", "name": cookie},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    """Return the description of one route: parameters, body, answers and who may call it."""
    names = [part[1:].partition("}")[0] for part in route.path.replace("{", "\0{").split("\0") if part[0] == "{"]
    parameters = [_in_path(each) for each in names]
    parameters += [
        {"name": each.name, "in": "query", "description": each.doc, "schema": each.schema()} for each in route.query
    ]
    if route.access == CHANGE or (route.access != OPEN and route.method == "DELETE"):
        parameters.append(
            {
                "name": CSRF_HEADER,
                "in": "header",
                "description": "From /v1/session; not needed with a Bearer token.",
                "schema": TEXT,
            }
        )
    problem = {
        "description": "One line of cause, one of hint",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    found: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.handler.__module__.rpartition('.')[2]}.{route.handler.__name__}",
        "tags": [route.handler.__module__.rpartition(".")[2]],
        "parameters": parameters,
        "responses": {**_answers(route), "4XX": problem, "5XX": problem},
        # {}: a console without a token asks for no login.
        "security": [] if route.access == OPEN else [{"cookie": []}, {"bearer": []}, {}],
    }
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": route.body}}}
    return found


def _answers(route: Route) -> dict[str, Any]:
    """Return the answers of a route by HTTP status, without those that are a Problem."""
    if not route.answer:
        return {"204": {"description": "Done"}}
    if "/" in route.answer:  # a media type, not the name of a schema
        return {"200": {"description": route.summary, "content": {route.answer: {"schema": {}}}}}
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{route.answer}"}}}
    found = {"200": {"description": route.summary, "content": content}}
    if route.answer == "Readiness":
        found["503"] = {"description": "Not ready", "content": content}
    return found


def _in_path(name: str) -> dict[str, Any]:
    """Return the description of one parameter in a path."""
    schema: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME}
    if name in _NUMBERS:
        schema = {"type": "integer", "minimum": 0, "maximum": (1 << 31) - 1}
    found: dict[str, Any] = {"name": name, "in": "path", "required": True, "schema": schema}
    if name in _TEXTS:
        found["description"] = "Of the names `.` and `..`, which browsers take for folders, write `.;` and `..;`."
    return found
