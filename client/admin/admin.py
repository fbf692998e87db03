"""Admin: a client that inspects and changes a cluster, from topics to hanging transactions. One module for each area.

    async with fp.Admin("localhost:9092") as admin:
        await admin.create_topics(fp.NewTopic("orders", num_partitions=3))
        print(await admin.find_blockers())

The rule: names are those of aiokafka and Kafka where these have them; a list of names may also be a single `str`.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..addresses import Bootstrap
from ..net.cluster import Cluster
from ..net.environment import SYSTEM, Environment
from ..net.topology import Node
from ..settings import AdminSettings, ConnectionKeywords, admin_settings
from ..snapshots import AdminSnapshot
from .groups import GroupAdmin
from .held_offsets import HeldOffsetsAdmin
from .log_dirs import LogDirAdmin
from .monitoring import MonitoringAdmin
from .named_producers import NamedProducerAdmin
from .quotas import QuotaAdmin
from .security import SecurityAdmin
from .share_groups import ShareGroupAdmin
from .values import ClusterDescription

if TYPE_CHECKING:
    from typing import Self, Unpack


class Admin(
    LogDirAdmin,
    GroupAdmin,
    ShareGroupAdmin,
    HeldOffsetsAdmin,
    SecurityAdmin,
    QuotaAdmin,
    MonitoringAdmin,
    NamedProducerAdmin,
):
    """`async with` starts and closes it. Needs a broker of Kafka 2.1; a newer call raises UnsupportedVersionError."""

    def __init__(
        self,
        bootstrap_servers: Bootstrap,
        *,
        environment: Environment = SYSTEM,
        **keywords: "Unpack[ConnectionKeywords]",
    ) -> None:
        self._begin(admin_settings(bootstrap_servers, **keywords), environment)

    def _begin(self, settings: AdminSettings, environment: Environment) -> None:
        """Set the attributes of a new Admin. Connects to no broker yet."""
        self._settings = settings
        self._environment = environment
        self._cluster = Cluster(settings, environment)

    @classmethod
    def of(cls, settings: AdminSettings, environment: Environment = SYSTEM) -> "Self":
        """Create an Admin from a settings object."""
        admin = cls.__new__(cls)
        admin._begin(settings, environment)
        return admin

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, environment: Environment = SYSTEM) -> "Self":
        """Create an Admin from setting names of Java's client or of librdkafka: {"bootstrap.servers": …}."""
        from ..config_names import settings_from

        return cls.of(settings_from(AdminSettings, config), environment)

    def state(self) -> AdminSnapshot:
        """Return a snapshot of the client's connections."""
        return AdminSnapshot(self._cluster.connection_snapshots())

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._settings.bootstrap_servers)
        return f"<Admin {servers} {sum(one.is_open for one in self._cluster.connection_snapshots())} connections>"

    async def start(self) -> None:
        """Connect. Raises BrokerUnreachableError, AuthenticationError."""
        await self._cluster.start()

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._cluster.close()

    async def __aenter__(self) -> "Self":
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def describe_cluster(self) -> ClusterDescription:
        """Return the brokers by their advertised addresses, the controller, and the finalized features."""
        metadata = await self._metadata([])
        nodes = tuple(Node(each.node_id, each.host, each.port, each.rack) for each in metadata.brokers)
        features = dict((await self._cluster.any_node()).features)
        return ClusterDescription(metadata.cluster_id, metadata.controller_id, tuple(sorted(nodes)), features)
