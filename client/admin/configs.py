"""Admin's calls about configs of topics and brokers. Sources: KIP-133, KIP-226, KIP-339."""

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

_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1


class ConfigAdmin(Asking):
    """Configs of topics and brokers. A broker is named by its node id; "" means all brokers."""

    async def describe_configs(
        self, *, topics: str | Iterable[str] = (), brokers: Iterable[int] = ()
    ) -> dict[str, list[ConfigEntry]]:
        """All configs, by the name of the topic or the id of the broker. Raises UnknownTopicError."""
        found: dict[str, list[ConfigEntry]] = {}
        named = [(_TOPIC, name) for name in one_or_more(topics)]
        targets: list[tuple[Target, list[tuple[int, str]]]] = [("any", named)] if named else []
        targets += [(node, [(_BROKER, str(node))]) for node in brokers]
        for target, resources in targets:
            for result in await self._describe(target, resources):
                found[result.resource_name] = [
                    ConfigEntry(each.name, each.value, source_of(each.config_source), each.read_only, each.is_sensitive)
                    for each in sorted(result.configs, key=lambda each: each.name)
                ]
        return found

    async def _describe(self, target: Target, resources: list[tuple[int, str]]) -> list[DescribeConfigsResponse.Result]:
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
        set: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Change some configs of one topic or broker ("": of all brokers); deleted ones fall back to their defaults.

        With a broker before 2.3 all configs are read and written back, which can undo a change made in between.
        """
        if (topic is None) == (broker is None):
            raise TypeError("alter_configs needs a topic or a broker")
        kind, name = (_TOPIC, topic) if topic is not None else (_BROKER, str(broker))
        target: Target = "any" if kind == _TOPIC or not name else int(name)
        changes = {**(set or {}), **dict.fromkeys(delete)}
        assert name is not None
        try:
            await self._alter_some(target, kind, name, changes, validate_only)
        except UnsupportedVersionError:
            await self._alter_all(target, kind, name, changes, validate_only)

    async def _alter_some(
        self, target: Target, kind: int, name: str, changes: Mapping[str, str | None], validate_only: bool
    ) -> None:
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
        (before,) = await self._describe(target, [(kind, name)])
        own = {1: _TOPIC, 2: _BROKER, 3: _BROKER}
        kept = {
            each.name: each.value
            for each in before.configs
            if own.get(each.config_source) == kind and not each.is_sensitive and each.value is not None
        }
        after = {key: value for key, value in {**kept, **changes}.items() if value is not None}
        Resource = AlterConfigsRequest.Resource
        configs = [Resource.Config(name=key, value=value) for key, value in after.items()]
        resource = Resource(resource_type=kind, resource_name=name, configs=configs)
        request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        response = await self._ask(target, request, lambda r: [each.error_code for each in r.responses])
        refuse(Answer(_resource(kind, name), each.error_code, each.error_message) for each in response.responses)


def _resource(kind: int, name: str) -> str:
    return f"topic {name}" if kind == _TOPIC else f"broker {name}" if name else "all brokers"
