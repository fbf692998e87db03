"""The blocking Admin."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from ..admin.admin import Admin as AsyncAdmin
from .blocking import Blocking, forward

if TYPE_CHECKING:
    from typing import Unpack

    from ..addresses import Bootstrap
    from ..settings import ConnectionKeywords


class Admin(Blocking[AsyncAdmin]):
    """Like fencepost.Admin; every method waits for its result."""

    def __init__(self, bootstrap_servers: "Bootstrap", **keywords: "Unpack[ConnectionKeywords]") -> None:
        super().__init__(lambda: AsyncAdmin(bootstrap_servers, **keywords))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Create an Admin from setting names of Java's client or of librdkafka: {"bootstrap.servers": …}."""
        admin = cls.__new__(cls)
        super(Admin, admin).__init__(lambda: AsyncAdmin.from_config(config))
        return admin

    state = forward(AsyncAdmin.state)
    abort_transaction = forward(AsyncAdmin.abort_transaction)
    alter_client_quotas = forward(AsyncAdmin.alter_client_quotas)
    alter_configs = forward(AsyncAdmin.alter_configs)
    alter_group_offsets = forward(AsyncAdmin.alter_group_offsets)
    alter_share_group_offsets = forward(AsyncAdmin.alter_share_group_offsets)
    alter_user_scram_credentials = forward(AsyncAdmin.alter_user_scram_credentials)
    blockers_at = forward(AsyncAdmin.blockers_at)
    create_acls = forward(AsyncAdmin.create_acls)
    create_partitions = forward(AsyncAdmin.create_partitions)
    create_topics = forward(AsyncAdmin.create_topics)
    delete_acls = forward(AsyncAdmin.delete_acls)
    delete_group_offsets = forward(AsyncAdmin.delete_group_offsets)
    delete_groups = forward(AsyncAdmin.delete_groups)
    delete_records = forward(AsyncAdmin.delete_records)
    delete_share_group_offsets = forward(AsyncAdmin.delete_share_group_offsets)
    delete_topics = forward(AsyncAdmin.delete_topics)
    describe_acls = forward(AsyncAdmin.describe_acls)
    describe_client_quotas = forward(AsyncAdmin.describe_client_quotas)
    describe_clients = forward(AsyncAdmin.describe_clients)
    describe_cluster = forward(AsyncAdmin.describe_cluster)
    allowed_operations = forward(AsyncAdmin.allowed_operations)
    describe_configs = forward(AsyncAdmin.describe_configs)
    describe_groups = forward(AsyncAdmin.describe_groups)
    describe_listed_transactions = forward(AsyncAdmin.describe_listed_transactions)
    describe_log_dirs = forward(AsyncAdmin.describe_log_dirs)
    describe_metrics = forward(AsyncAdmin.describe_metrics)
    describe_named_producers = forward(AsyncAdmin.describe_named_producers)
    remove_named_producers = forward(AsyncAdmin.remove_named_producers)
    describe_producers = forward(AsyncAdmin.describe_producers)
    describe_share_groups = forward(AsyncAdmin.describe_share_groups)
    describe_topics = forward(AsyncAdmin.describe_topics)
    describe_transaction_owners = forward(AsyncAdmin.describe_transaction_owners)
    describe_transactions = forward(AsyncAdmin.describe_transactions)
    describe_user_scram_credentials = forward(AsyncAdmin.describe_user_scram_credentials)
    ends = forward(AsyncAdmin.ends)
    fence_described = forward(AsyncAdmin.fence_described)
    fence_producers = forward(AsyncAdmin.fence_producers)
    find_blockers = forward(AsyncAdmin.find_blockers)
    find_held_offsets = forward(AsyncAdmin.find_held_offsets)
    find_low_log_dirs = forward(AsyncAdmin.find_low_log_dirs)
    find_hanging_transactions = forward(AsyncAdmin.find_hanging_transactions)
    list_group_offsets = forward(AsyncAdmin.list_group_offsets)
    list_groups = forward(AsyncAdmin.list_groups)
    list_offsets = forward(AsyncAdmin.list_offsets)
    list_share_group_offsets = forward(AsyncAdmin.list_share_group_offsets)
    list_topics = forward(AsyncAdmin.list_topics)
    list_transactions = forward(AsyncAdmin.list_transactions)
    open_transactions = forward(AsyncAdmin.open_transactions)
    prepared_transactions = forward(AsyncAdmin.prepared_transactions)
    read_page = forward(AsyncAdmin.read_page)
    remove_members = forward(AsyncAdmin.remove_members)
