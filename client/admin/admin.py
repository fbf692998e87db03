"""Admin: looking after a cluster, from topics to transactions that hang. One client, its areas each in a module.

    async with fp.Admin("localhost:9092") as admin:
        await admin.create_topics(fp.NewTopic("orders", num_partitions=3))
        print(await admin.find_blockers())

The rule: names are aiokafka's and Kafka's where they have them; a single name may stand where several are taken.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..net.cluster import Cluster
from ..net.environment import SYSTEM, Environment
from ..net.topology import Node
from ..settings import AdminSettings, Bootstrap, ConnectionKeywords, admin_settings
from ..snapshots import AdminSnapshot
from .configs import ConfigAdmin
from .groups import GroupAdmin
from .reading import ReadingAdmin
from .transactions import TransactionAdmin
from .values import ClusterDescription

if TYPE_CHECKING:
    from typing import Self, Unpack


class Admin(ConfigAdmin, GroupAdmin, TransactionAdmin, ReadingAdmin):
    """`async with` starts and closes it. Works with any broker from Kafka 2.1 on; what is newer says so when called."""

    def __init__(
        self,
        bootstrap_servers: Bootstrap,
        *,
        environment: Environment = SYSTEM,
        **keywords: "Unpack[ConnectionKeywords]",
    ) -> None:
        self._begin(admin_settings(bootstrap_servers, **keywords), environment)

    def _begin(self, settings: AdminSettings, environment: Environment) -> None:
        self._settings = settings
        self._environment = environment
        self._cluster = Cluster(settings, environment)

    @classmethod
    def of(cls, settings: AdminSettings, environment: Environment = SYSTEM) -> "Self":
        """One with settings that are there already, in any world."""
        admin = cls.__new__(cls)
        admin._begin(settings, environment)
        return admin

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, environment: Environment = SYSTEM) -> "Self":
        """With Java's and librdkafka's names: {"bootstrap.servers": …}."""
        from ..config_names import settings_from

        return cls.of(settings_from(AdminSettings, config), environment)

    def state(self) -> AdminSnapshot:
        """Its connections, as of now."""
        return AdminSnapshot(self._cluster.connection_snapshots())

    def __repr__(self) -> str:
        servers = ",".join(f"{host}:{port}" for host, port in self._settings.bootstrap_servers)
        return f"<Admin {servers} {sum(one.is_open for one in self._cluster.connection_snapshots())} connections>"

    async def start(self) -> None:
        """Raises BrokerUnreachableError, AuthenticationError."""
        await self._cluster.start()

    async def close(self) -> None:
        """Idempotent."""
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
        """The brokers as they advertise themselves, and what is finalized."""
        metadata = await self._metadata([])
        nodes = tuple(Node(each.node_id, each.host, each.port, each.rack) for each in metadata.brokers)
        features = dict((await self._cluster.any_node()).features)
        return ClusterDescription(metadata.cluster_id, metadata.controller_id, tuple(sorted(nodes)), features)
