"""Admin's calls about configs of topics, brokers and groups. Sources: KIP-133, KIP-226, KIP-339, KIP-848."""

from collections.abc import Iterable, Mapping

from ...protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from ..errors import UnsupportedVersionError
from ..net.cluster import Target
from .asking import Answer, Asking, one_or_more, refuse
from .values import ConfigEntry, source_of

_TOPIC, _BROKER, _GROUP = 2, 4, 32
_OWN = {1: _TOPIC, 2: _BROKER, 3: _BROKER, 8: _GROUP}
"""The type of resource that a source of configs belongs to."""
_SET, _DELETE = 0, 1


class ConfigAdmin(Asking):
    """Configs of topics, brokers and groups. A broker is named by its node id; "" means all brokers."""

    async def describe_configs(
        self, *, topics: str | Iterable[str] = (), brokers: Iterable[int] = (), groups: str | Iterable[str] = ()
    ) -> dict[str, list[ConfigEntry]]:
        """Return all configs, by the name of the topic or group, or the id of the broker. Raises UnknownTopicError.

        A group need not exist; brokers before Kafka 4.0 refuse to describe one. Ask for a topic and a group of the same
        name in two calls, because the result has one entry for each name.
        """
        found: dict[str, list[ConfigEntry]] = {}
        named = [(_TOPIC, name) for name in one_or_more(topics)]
        of_groups = [(_GROUP, name) for name in one_or_more(groups)]
        targets: list[tuple[Target, list[tuple[int, str]]]] = [("any", each) for each in (named, of_groups) if each]
        targets += [(node, [(_BROKER, str(node))]) for node in brokers]
        for target, resources in targets:
            for result in await self._describe(target, resources):
                found[result.resource_name] = [
                    ConfigEntry(each.name, each.value, source_of(each.config_source), each.read_only, each.is_sensitive)
                    for each in sorted(result.configs, key=lambda each: each.name)
                ]
        return found

    async def _describe(self, target: Target, resources: list[tuple[int, str]]) -> list[DescribeConfigsResponse.Result]:
        """Send DescribeConfigs for these resources (type, name) and return the results. Raises the error of the first
        resource that the broker refuses.
        """
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name) for kind, name in resources
            ]
        )
        response: DescribeConfigsResponse = await self._ask(
            target, request, lambda r: [each.error_code for each in r.results]
        )
        refuse(
            Answer(_resource(each.resource_type, each.resource_name), each.error_code, each.error_message)
            for each in response.results
        )
        return response.results

    async def alter_configs(
        self,
        *,
        topic: str | None = None,
        broker: int | str | None = None,
        group: str | None = None,
        set: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Change some configs of one topic, group or broker ("": of all brokers); deleted ones get their default values
        again.

        With a broker before 2.3 all configs are read and written back, which can undo a change made in between.
        """
        named = ((_TOPIC, topic), (_BROKER, None if broker is None else str(broker)), (_GROUP, group))
        given = [(kind, name) for kind, name in named if name is not None]
        if len(given) != 1:
            raise TypeError("alter_configs needs a topic, a broker or a group, and one of them only")
        kind, name = given[0]
        target: Target = int(name) if kind == _BROKER and name else "any"
        changes = {**(set or {}), **dict.fromkeys(delete)}
        try:
            await self._alter_some(target, kind, name, changes, validate_only)
        except UnsupportedVersionError:
            await self._alter_all(target, kind, name, changes, validate_only)

    async def _alter_some(
        self, target: Target, kind: int, name: str, changes: Mapping[str, str | None], validate_only: bool
    ) -> None:
        """Change only the named settings of one resource (IncrementalAlterConfigs); a value of None removes the
        setting. Raises the broker's error if it refuses. validate_only: the broker checks the changes and makes none.
        """
        Resource = IncrementalAlterConfigsRequest.Resource
        configs = [
            Resource.Config(name=key, config_operation=_DELETE if value is None else _SET, value=value)
            for key, value in changes.items()
        ]
        resource = Resource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        response = await self._ask(target, request, lambda r: [each.error_code for each in r.responses])
        refuse(Answer(_resource(kind, name), each.error_code, each.error_message) for each in response.responses)

    async def _alter_all(
        self, target: Target, kind: int, name: str, changes: Mapping[str, str | None], validate_only: bool
    ) -> None:
        """Change configs of a broker that lacks IncrementalAlterConfigs: read all, and write all with the changes."""
        (before,) = await self._describe(target, [(kind, name)])
        kept = {
            each.name: each.value
            for each in before.configs
            if _OWN.get(each.config_source) == kind and not each.is_sensitive and each.value is not None
        }
        after = {key: value for key, value in {**kept, **changes}.items() if value is not None}
        Resource = AlterConfigsRequest.Resource
        configs = [Resource.Config(name=key, value=value) for key, value in after.items()]
        resource = Resource(resource_type=kind, resource_name=name, configs=configs)
        request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        response = await self._ask(target, request, lambda r: [each.error_code for each in r.responses])
        refuse(Answer(_resource(kind, name), each.error_code, each.error_message) for each in response.responses)


def _resource(kind: int, name: str) -> str:
    """Return a resource as errors name it, such as "topic orders". kind: Kafka's number of its type."""
    if kind == _BROKER:
        return f"broker {name}" if name else "all brokers"
    return f"topic {name}" if kind == _TOPIC else f"group {name}"
