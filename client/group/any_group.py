"""The member of a group for a consumer's settings: of the classic protocol, or of the newer one."""

from ..net.cluster import Cluster
from ..net.environment import Environment
from ..settings import CONSUMER, ConsumerSettings
from .classic_group import ClassicGroup
from .consumer_group import ConsumerGroup
from .group import Group
from .subscription import Subscription


def group_of(
    cluster: Cluster, settings: ConsumerSettings, subscription: Subscription, environment: Environment
) -> Group:
    """Return the group of the settings' protocol. Raises InvalidConfigurationError without a group_id."""
    kind = ConsumerGroup if settings.group_protocol == CONSUMER else ClassicGroup
    return kind(cluster, settings, subscription, environment)
