"""The cluster and its brokers, in Confluent's shapes."""

from typing import Any

from ...client.admin.values import ClusterDescription, ConfigEntry
from ..asked import Asked
from ..http.problems import NOT_FOUND, Problem
from ..model.view import FEATURE
from ..routes import Route
from .listing import item, related, whole
from .places import cluster_id, number_of

_SOURCES = {
    "topic": "DYNAMIC_TOPIC_CONFIG",
    "broker": "DYNAMIC_BROKER_CONFIG",
    "all brokers": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "file or flag": "STATIC_BROKER_CONFIG",
    "default": "DEFAULT_CONFIG",
    "broker logger": "DYNAMIC_BROKER_LOGGER_CONFIG",
}


async def clusters(asked: Asked) -> dict[str, Any]:
    """Handle GET /v3/clusters: a list with the one cluster."""
    return whole("KafkaClusterList", "/v3/clusters", [_row(await asked.parts.cluster())])


async def cluster(asked: Asked) -> dict[str, Any]:
    """Handle GET /v3/clusters/{cluster_id}: the cluster in Confluent's shape."""
    await cluster_id(asked)
    return _row(await asked.parts.cluster())


def _row(found: ClusterDescription) -> dict[str, Any]:
    """Return the cluster in Confluent's shape."""
    name = found.cluster_id or "unknown"
    links = ("brokers", "topics", "consumer_groups", "transactions", "blockers")
    return item(
        "KafkaCluster",
        [name],
        {
            "controller": related(name, "brokers", found.controller) if found.controller >= 0 else None,
            **{each: related(name, each.replace("_", "-")) for each in links},
            "brokers_count": len(found.nodes),
            "fencepost": FEATURE in found.features,
            "features": dict(found.features),
        },
    )


async def brokers(asked: Asked) -> dict[str, Any]:
    """Handle GET …/brokers: all brokers of the cluster."""
    name = await cluster_id(asked)
    found = await asked.parts.cluster()
    return whole("KafkaBrokerList", asked.request.path, [_broker(name, each) for each in found.nodes])


async def broker(asked: Asked) -> dict[str, Any]:
    """Handle GET …/brokers/{broker_id}: one broker. Raises Problem if there is none."""
    return _broker(await cluster_id(asked), await _node(asked))


async def broker_configs(asked: Asked) -> dict[str, Any]:
    """Handle GET …/brokers/{broker_id}/configs: the broker's settings; values of secrets are null."""
    name, node = await cluster_id(asked), await _node(asked)
    found = await (await asked.admin()).describe_configs(brokers=[node.node_id])
    rows = [
        item("KafkaBrokerConfig", [name, "brokers", node.node_id, "configs", each.name], config(each))
        for each in found[str(node.node_id)]
    ]
    return whole("KafkaBrokerConfigList", asked.request.path, rows)


async def _node(asked: Asked) -> Any:
    """Return the broker that the path names. Raises Problem if there is none."""
    wanted = number_of(asked, "broker_id")
    for each in (await asked.parts.cluster()).nodes:
        if each.node_id == wanted:
            return each
    raise Problem(NOT_FOUND, f"there is no broker {wanted}")


def _broker(name: str, node: Any) -> dict[str, Any]:
    """Return a broker in Confluent's shape. name: the cluster's id."""
    return item(
        "KafkaBroker",
        [name, "brokers", node.node_id],
        {
            "broker_id": node.node_id,
            "host": node.host,
            "port": node.port,
            "rack": node.rack,
            "configs": related(name, "brokers", node.node_id, "configs"),
        },
    )


def config(found: ConfigEntry) -> dict[str, Any]:
    """Return the fields of one setting, as in Confluent's API; the value of a secret is null."""
    return {
        "name": found.name,
        "value": found.value,
        "is_default": found.is_default,
        "is_read_only": found.read_only,
        "is_sensitive": found.sensitive,
        "source": _SOURCES.get(found.source, "UNKNOWN"),
        "synonyms": [],
    }


_C = "/v3/clusters/{cluster_id}"
ROUTES = (
    Route("GET", "/v3/clusters", clusters, "The one cluster of this console", "ClusterList"),
    Route("GET", _C, cluster, "The cluster", "Cluster"),
    Route("GET", _C + "/brokers", brokers, "Its brokers", "BrokerList"),
    Route("GET", _C + "/brokers/{broker_id}", broker, "One broker", "Broker"),
    Route("GET", _C + "/brokers/{broker_id}/configs", broker_configs, "Its settings, no secrets", "ConfigList"),
)
