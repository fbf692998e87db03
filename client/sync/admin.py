"""Admin, blocking."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from ..admin.admin import Admin as AsyncAdmin
from .blocking import Blocking, forwarded

if TYPE_CHECKING:
    from typing import Unpack

    from ..settings import Bootstrap, ConnectionKeywords


class Admin(Blocking[AsyncAdmin]):
    """As fencepost.Admin; every method waits for its answer."""

    def __init__(self, bootstrap_servers: "Bootstrap", **keywords: "Unpack[ConnectionKeywords]") -> None:
        super().__init__(lambda: AsyncAdmin(bootstrap_servers, **keywords))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """With Java's and librdkafka's names: {"bootstrap.servers": …}."""
        admin = cls.__new__(cls)
        super(Admin, admin).__init__(lambda: AsyncAdmin.from_config(config))
        return admin

    state = forwarded(AsyncAdmin.state)
    abort_transaction = forwarded(AsyncAdmin.abort_transaction)
    alter_configs = forwarded(AsyncAdmin.alter_configs)
    alter_group_offsets = forwarded(AsyncAdmin.alter_group_offsets)
    create_partitions = forwarded(AsyncAdmin.create_partitions)
    create_topics = forwarded(AsyncAdmin.create_topics)
    delete_group_offsets = forwarded(AsyncAdmin.delete_group_offsets)
    delete_groups = forwarded(AsyncAdmin.delete_groups)
    delete_records = forwarded(AsyncAdmin.delete_records)
    delete_topics = forwarded(AsyncAdmin.delete_topics)
    describe_cluster = forwarded(AsyncAdmin.describe_cluster)
    describe_configs = forwarded(AsyncAdmin.describe_configs)
    describe_groups = forwarded(AsyncAdmin.describe_groups)
    describe_producers = forwarded(AsyncAdmin.describe_producers)
    describe_topics = forwarded(AsyncAdmin.describe_topics)
    describe_transactions = forwarded(AsyncAdmin.describe_transactions)
    ends = forwarded(AsyncAdmin.ends)
    fence_producers = forwarded(AsyncAdmin.fence_producers)
    find_blockers = forwarded(AsyncAdmin.find_blockers)
    find_hanging_transactions = forwarded(AsyncAdmin.find_hanging_transactions)
    list_group_offsets = forwarded(AsyncAdmin.list_group_offsets)
    list_groups = forwarded(AsyncAdmin.list_groups)
    list_offsets = forwarded(AsyncAdmin.list_offsets)
    list_topics = forwarded(AsyncAdmin.list_topics)
    list_transactions = forwarded(AsyncAdmin.list_transactions)
    open_transactions = forwarded(AsyncAdmin.open_transactions)
    remove_members = forwarded(AsyncAdmin.remove_members)
