"""Admin, blocking."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from .admin import Admin as AsyncAdmin
from .blocking import Blocking, waiting

if TYPE_CHECKING:
    from typing import Unpack

    from .settings import Bootstrap, ConnectionKeywords


class Admin(Blocking[AsyncAdmin]):
    """As fencepost.Admin; every method waits for its answer."""

    def __init__(self, bootstrap_servers: "Bootstrap", **keywords: "Unpack[ConnectionKeywords]") -> None:
        super().__init__(lambda: AsyncAdmin(bootstrap_servers, **keywords))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """With Java's and librdkafka's names: {"bootstrap.servers": …}."""
        admin = cls.__new__(cls)
        Blocking.__init__(admin, lambda: AsyncAdmin.from_config(config))
        return admin

    abort_transaction = waiting(AsyncAdmin.abort_transaction)
    alter_configs = waiting(AsyncAdmin.alter_configs)
    alter_group_offsets = waiting(AsyncAdmin.alter_group_offsets)
    create_partitions = waiting(AsyncAdmin.create_partitions)
    create_topics = waiting(AsyncAdmin.create_topics)
    delete_group_offsets = waiting(AsyncAdmin.delete_group_offsets)
    delete_groups = waiting(AsyncAdmin.delete_groups)
    delete_records = waiting(AsyncAdmin.delete_records)
    delete_topics = waiting(AsyncAdmin.delete_topics)
    describe_cluster = waiting(AsyncAdmin.describe_cluster)
    describe_configs = waiting(AsyncAdmin.describe_configs)
    describe_groups = waiting(AsyncAdmin.describe_groups)
    describe_producers = waiting(AsyncAdmin.describe_producers)
    describe_topics = waiting(AsyncAdmin.describe_topics)
    describe_transactions = waiting(AsyncAdmin.describe_transactions)
    ends = waiting(AsyncAdmin.ends)
    fence_producers = waiting(AsyncAdmin.fence_producers)
    find_blockers = waiting(AsyncAdmin.find_blockers)
    find_hanging_transactions = waiting(AsyncAdmin.find_hanging_transactions)
    list_group_offsets = waiting(AsyncAdmin.list_group_offsets)
    list_groups = waiting(AsyncAdmin.list_groups)
    list_offsets = waiting(AsyncAdmin.list_offsets)
    list_topics = waiting(AsyncAdmin.list_topics)
    list_transactions = waiting(AsyncAdmin.list_transactions)
    open_transactions = waiting(AsyncAdmin.open_transactions)
    remove_members = waiting(AsyncAdmin.remove_members)
