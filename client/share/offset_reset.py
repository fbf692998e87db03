"""Where a share group begins: its config share.auto.offset.reset, which all its consumers share.

The rule: a consumer sets it only where the group has none of its own; another value than it wants is an error, since
it would read from elsewhere than its caller expects. It counts when a topic is first read by the group.
"""

from ..admin.configs import ConfigAdmin
from ..errors import AuthorizationError, InvalidConfigurationError
from ..net.cluster import Cluster
from ..settings import ShareConsumerSettings

NAME = "share.auto.offset.reset"


class _Configs(ConfigAdmin):
    """Admin's calls about configs, over the consumer's connections."""

    def __init__(self, cluster: Cluster, settings: ShareConsumerSettings) -> None:
        self._cluster, self._settings, self._environment = cluster, settings, cluster.environment


async def set_offset_reset(cluster: Cluster, settings: ShareConsumerSettings) -> None:
    """Set the group's config share.auto.offset.reset to the consumer's auto_offset_reset, unless it has a value.
    Raises InvalidConfigurationError if it has another one, AuthorizationError if it may not be set.
    """
    group_id, wanted = settings.group_id, settings.auto_offset_reset
    assert wanted is not None
    configs = _Configs(cluster, settings)
    try:
        found = await _value_of(configs, group_id)
        if found is None:
            await configs.alter_configs(group=group_id, set={NAME: wanted})
            found = await _value_of(configs, group_id)  # another consumer may have set it at the same time
    except AuthorizationError as error:
        raise AuthorizationError(
            f"auto_offset_reset={wanted} cannot be set for share group {group_id!r}: {error}",
            code=error.code,
            hint=f"leave it out, and have an admin set {NAME}; or allow DescribeConfigs and AlterConfigs on the group",
        ) from error
    if found is not None and found != wanted:
        raise InvalidConfigurationError(
            f"share group {group_id!r} has {NAME}={found}, not auto_offset_reset={wanted}",
            hint="leave out auto_offset_reset, or change the group's config with Admin.alter_configs(group=…)",
        )


async def _value_of(configs: ConfigAdmin, group_id: str) -> str | None:
    """Return the group's own value of the config; None if it has none."""
    entries = (await configs.describe_configs(groups=[group_id]))[group_id]
    return next((each.value for each in entries if each.name == NAME and each.source == "group"), None)
