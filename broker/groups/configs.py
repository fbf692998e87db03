"""The configs of single groups: stored in the catalogue, in effect from the next heartbeat on.

The rule: a group need not exist to have configs, and keeps them when it is deleted, as in Kafka. The broker's settings
apply to groups without configs. A change is one unit of the catalogue; like any other it takes effect when it is
durable.
"""

import logging
from collections.abc import Iterable, Mapping

from ...protocol.errors import ErrorCode, KafkaError
from ..config.group_configs import OPTIONS, GroupConfigs, check
from ..config.live_settings import LiveSettings
from ..config.options import InvalidOption
from ..config.settings import BrokerSettings
from ..topics.catalogue import group_configs_changed
from ..topics.topics import Topics

log = logging.getLogger("fencepost.broker")

GROUP_BYTES = 500  # of memory for a group with configs, besides their texts


class ConfigsByGroup:
    """The configs of all groups of one broker."""

    def __init__(self, topics: Topics, settings: LiveSettings) -> None:
        self._topics = topics
        self._settings = settings
        self._obeyed: dict[str, GroupConfigs] = {}  # of groups with configs, and "" for all others
        self._obeyed_under: BrokerSettings | None = None  # the broker's settings that _obeyed was computed from
        self._size_bytes: int | None = None

    def names(self) -> Iterable[str]:
        """Return the ids of the groups that have configs of their own."""
        return self._topics.catalogue.group_configs

    def given(self, group_id: str) -> Mapping[str, str]:
        """Return the configs that were set for this group, by name; empty if none were."""
        return self._topics.catalogue.group_configs.get(group_id, {})

    def obeyed(self, group_id: str) -> GroupConfigs:
        """Return the configs in effect for this group: those set for the group, within the broker's bounds, else the
        broker's defaults.
        """
        now = self._settings.now
        if self._obeyed_under is not now:
            self._obeyed_under = now
            self._obeyed.clear()
        key = group_id if group_id in self._topics.catalogue.group_configs else ""
        found = self._obeyed.get(key)
        if found is None:
            usable = _usable(key, self.given(key))
            found = self._obeyed[key] = GroupConfigs.of(usable, now)
            _warn_of_bounds(key, usable, found)
        return found

    def check(self, configs: Mapping[str, str]) -> None:
        """Raise INVALID_CONFIG if alter() would not accept these configs."""
        try:
            check(configs, self._settings.now)
        except InvalidOption as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None

    def alter(self, group_id: str, configs: Mapping[str, str]) -> None:
        """Replace all configs of the group; an empty mapping removes them.

        Raises INVALID_CONFIG; POLICY_VIOLATION if groups' configs take more memory than allowed; KAFKA_STORAGE_ERROR.
        """
        self.check(configs)
        if not configs and not self.given(group_id):
            return
        before = self._bytes()
        grown = before + _size_bytes(group_id, configs) - _size_bytes(group_id, self.given(group_id))
        if before < grown and grown > self._settings.now.group_metadata_max_bytes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, "the settings of groups take all that group.metadata.max.bytes allows"
            )
        self._topics.commit([group_configs_changed(group_id, configs)], [])
        self._size_bytes = grown
        self._obeyed.pop(group_id, None)

    def _bytes(self) -> int:
        """Return the approximate memory in bytes that the configs of all groups take."""
        if self._size_bytes is None:
            kept = self._topics.catalogue.group_configs
            self._size_bytes = sum(_size_bytes(group_id, configs) for group_id, configs in kept.items())
        return self._size_bytes


def _size_bytes(group_id: str, configs: Mapping[str, str]) -> int:
    """Return the approximate memory in bytes that the configs of one group take."""
    return GROUP_BYTES + 4 * len(group_id) + sum(map(len, configs.values())) if configs else 0


def _warn_of_bounds(group_id: str, given: Mapping[str, str], obeyed: GroupConfigs) -> None:
    """Log each config whose value is outside the broker's bounds, so that the bound is in effect instead."""
    for name, text in given.items():
        value = getattr(obeyed, OPTIONS[name].field_name)
        if value != OPTIONS[name].parse(text):
            log.warning("group %s was given %s=%s, and obeys %s, the broker's bound", group_id, name, text, value)


def _usable(group_id: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the stored configs whose names this version knows and whose values it accepts. The others are ignored; a
    value that it does not accept is also logged.
    """
    found = {}
    for name, text in given.items():
        try:
            if name in OPTIONS:
                OPTIONS[name].parse(text)
                found[name] = text
        except InvalidOption as error:
            log.warning("a setting of group %s that an earlier version took is ignored: %s", group_id, error)
    return found
