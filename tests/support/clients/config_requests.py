"""Requests about settings of one resource each, and what of their answers counts."""

from typing import Any

from fencepost.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from simulated_broker import SimulatedBroker

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
OK = (0, None)


def describe(broker: SimulatedBroker, kind: int, name: str, keys: list[str] | None = None, **asked: Any) -> Any:
    resource = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=keys)
    (result,) = broker.ask(DescribeConfigsRequest(resources=[resource], **asked)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def alter(broker: SimulatedBroker, kind: int, name: str, configs: dict[str, str | None], **asked: Any) -> Any:
    entries = [AlterConfigsRequest.Resource.Config(name=key, value=value) for key, value in configs.items()]
    resource = AlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=entries)
    (result,) = broker.ask(AlterConfigsRequest(resources=[resource], **asked)).responses
    return result.error_code, result.error_message


Change = IncrementalAlterConfigsRequest.Resource.Config


def change(broker: SimulatedBroker, kind: int, name: str, *changes: tuple[str, int, str | None], **asked: Any) -> Any:
    entries = [Change(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = IncrementalAlterConfigsRequest.Resource(resource_type=kind, resource_name=name, configs=entries)
    (result,) = broker.ask(IncrementalAlterConfigsRequest(resources=[resource], **asked)).responses
    return result.error_code, result.error_message


def overrides(broker: SimulatedBroker, topic: str = "a") -> dict[str, str]:
    return {config.name: config.value for config in describe(broker, TOPIC, topic).configs if config.config_source == 1}
