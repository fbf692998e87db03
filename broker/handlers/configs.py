"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: of topics, groups and the broker.

A resource is changed whole or not at all. Texts and codes are Kafka's (ConfigurationControlManager for topics and
groups, DynamicBrokerConfig for brokers), including that a wrong value is INVALID_CONFIG at a topic or group and
INVALID_REQUEST at a broker.
Sources: KIP-133, KIP-226, KIP-339, KIP-569, KIP-848, KIP-1142.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ..config.configuration import accepted_names
from ..config.group_configs import OPTIONS as GROUP_OPTIONS
from ..config.group_configs import synonyms as group_synonyms
from ..config.kafka_names import is_harmless
from ..config.kafka_options import NO_EFFECT, SETTABLE
from ..config.listener_settings import OVERRIDE
from ..config.no_effect import (
    SPELT_OTHERWISE,
    check_ignored_option,
    left_over,
    spelt_synonyms,
    synonyms_of_ignored_option,
)
from ..config.options import ConfigType, InvalidOption, Option, nearest
from ..config.settings import BROKER_OPTIONS, TOPIC_OPTIONS, Source
from ..net.turns import SUBJECT_UNITS, AnswerRoom, Steps, answer_each
from ..requests.dispatch import Call, handles
from ..requests.services import Services
from ..security.acls import Operation, ResourceType
from ..topics.names import check_name
from ..topics.topics import Topic

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32  # resource types
SET, DELETE, APPEND, SUBTRACT = range(4)
LONGEST_NAME = 100  # of any setting, about; a longer one is not a typing error
CONFIG_BYTES = 60  # of an answer, beside value and documentation

_Result = DescribeConfigsResponse.Result
_Described = DescribeConfigsResponse.Result.Config
_Synonyms = Sequence[tuple[str, str | None, Source]]
_Known = dict[tuple[int, frozenset[tuple[str, str]], frozenset[str]], list[_Described]]  # of one request
_Merge = Callable[[Mapping[str, str], Mapping[str, Option]], dict[str, str]]


# ---- ListConfigResources -------------------------------------------------------------------------------------


@handles(ListConfigResourcesRequest, may_be_long=True)
def list_config_resources(
    broker: Services, call: Call, request: ListConfigResourcesRequest
) -> Steps[ListConfigResourcesResponse]:
    """List the resources with settings: topics, the broker, its loggers, groups with settings of their own."""
    broker.access.check_on_cluster(call.session, Operation.DESCRIBE_CONFIGS)
    named = {
        TOPIC: broker.topics.by_name,
        BROKER: [str(broker.node_id)],
        BROKER_LOGGER: [str(broker.node_id)],
        CLIENT_METRICS: [],
        GROUP: broker.group_configs.names(),
    }
    kinds = {CLIENT_METRICS} if call.version == 0 else set(request.resource_types) or named.keys()
    if not kinds <= named.keys():
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    made = ListConfigResourcesResponse.Resource
    wanted = [(name, kind) for kind in sorted(kinds) for name in named[kind]]
    resources = yield from answer_each(wanted, lambda each: made(resource_name=each[0], resource_type=each[1]))
    return ListConfigResourcesResponse(config_resources=resources)


# ---- DescribeConfigs -----------------------------------------------------------------------------------------


@handles(DescribeConfigsRequest, may_be_long=True)
def describe_configs(broker: Services, call: Call, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    """Answer with each setting, the source of its value, and (if asked for) the values it would fall back to."""
    known: _Known = {}
    room, named = AnswerRoom(len(broker.server.connections)), set[tuple[int, str]]()

    def answer(resource: DescribeConfigsRequest.Resource) -> _Result:
        """Describe one resource; one named again is refused when the answer is full."""
        which = resource.resource_type, resource.resource_name
        if which in named and room.is_full:
            error = ErrorCode.INVALID_REQUEST
            broker.metrics.error("DescribeConfigs", error)
            return _Result(
                error_code=error,
                error_message="It is named more than once, for which the answer has no room.",
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        named.add(which)
        result = _describe_or_refuse(broker, call, resource, request, known)
        room.take(_size_bytes(result))
        return result

    results = yield from answer_each(request.resources, answer, SUBJECT_UNITS)
    return DescribeConfigsResponse(results=results)


def _check_access(broker: Services, call: Call, operation: Operation, kind: int, name: str) -> None:
    """Raise TOPIC_, GROUP_ or CLUSTER_AUTHORIZATION_FAILED if the client may not do this operation on the resource."""
    if kind == TOPIC:
        broker.access.check(call.session, operation, ResourceType.TOPIC, name)
    elif kind == GROUP:
        broker.access.check(call.session, operation, ResourceType.GROUP, name)
    elif kind in (BROKER, BROKER_LOGGER, CLIENT_METRICS):
        broker.access.check_on_cluster(call.session, operation)


def _size_bytes(result: _Result) -> int:
    """Return the approximate size in bytes of this resource in the answer."""
    return sum(
        CONFIG_BYTES + (1 + len(config.synonyms)) * len(config.value or "") + len(config.documentation or "")
        for config in result.configs or ()
    )


def _describe_or_refuse(
    broker: Services,
    call: Call,
    resource: DescribeConfigsRequest.Resource,
    request: DescribeConfigsRequest,
    known: _Known,
) -> _Result:
    """Return the configs of one resource, or its error. known: what was described before for this request."""
    result = _Result(error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        _check_access(broker, call, Operation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
        options, synonyms, given = _resource(broker, resource.resource_type, resource.resource_name)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.text
        return result
    wanted = frozenset(resource.configuration_keys or options)
    key = resource.resource_type, frozenset(given.items()), wanted
    if key not in known:
        known[key] = [
            _describe(row, synonyms(name), request, resource.resource_type)
            for name, row in sorted(options.items())
            if name in wanted
        ]
    result.configs = known[key]
    return result


def _resource(
    broker: Services, kind: int, name: str
) -> tuple[Mapping[str, Option], Callable[[str], _Synonyms], Mapping[str, str]]:
    """Return its options, a function that returns an option's synonyms, and what else tells its values from those of
    other resources: the stored ones, or a broker's name as {"": name}. Raises KafkaError.
    """
    if kind == TOPIC:
        topic = _topic(broker, name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        configs = topic.configs
        return TOPIC_OPTIONS, lambda option: broker.topics.config_synonyms(option, configs), configs
    if kind == GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        given = broker.group_configs.given(name)
        return GROUP_OPTIONS, lambda option: group_synonyms(option, given, broker.settings), given
    if kind == BROKER:
        if name:
            _check_broker_id(broker, name, "Broker id", "expected {} or empty string")
        return _broker_resource(broker, name)
    if kind == BROKER_LOGGER:
        _check_logged_broker(broker, name, "Broker id")
        return {}, lambda option: [], {}
    if kind == CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return {}, lambda option: [], {}
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def _broker_resource(
    broker: Services, name: str
) -> tuple[Mapping[str, Option], Callable[[str], _Synonyms], Mapping[str, str]]:
    """Return what _resource() returns, for a broker. For this broker the options are all settings that Kafka and
    fencepost have. For the default of all brokers (name ""), and for another id for which something is stored, they are
    only those that were set.
    """
    topics, settings = broker.topics, broker.settings
    of_all = topics.broker_configs("")
    of_one = topics.broker_configs(name) if name else {}
    is_other = name not in ("", str(broker.node_id))
    rows = {**NO_EFFECT, **SPELT_OTHERWISE, **BROKER_OPTIONS}
    rows |= left_over({each: text for each, text in (*of_all.items(), *of_one.items()) if each not in rows})

    def synonyms(option: str) -> _Synonyms:
        """Return all (name, value, source) that set a broker option, the effective one first."""
        if is_other:
            return [(option, of_one[option], Source.DYNAMIC_BROKER)]
        if not name:
            return [(option, of_all[option], Source.DYNAMIC_DEFAULT_BROKER)]
        if option in BROKER_OPTIONS:
            return settings.synonyms(option)
        if option in SPELT_OTHERWISE:
            return spelt_synonyms(option, settings)
        return synonyms_of_ignored_option(option, of_one, of_all)

    shown = of_one if is_other else rows if name else of_all
    return {option: rows[option] for option in shown}, synonyms, {"": name}


def _topic(broker: Services, name: str) -> Topic | None:
    """Return the topic; None if there is none. Raises KafkaError for a name that Kafka does not allow."""
    check_name(name)
    return broker.topics.by_name.get(name)


def _check_broker_id(broker: Services, name: str, what: str, expected: str) -> None:
    """Raise INVALID_REQUEST unless the name is this broker's id, or an id for which an earlier version stored
    configs.
    """
    if not _is_int32(name):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must be an integer, but it is: {name}")
    if name != str(broker.node_id) and not broker.topics.broker_configs(name):
        expectation = expected.format(broker.node_id)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, {expectation}, but received {name}")


def _check_logged_broker(broker: Services, name: str, what: str) -> None:
    """Raise INVALID_REQUEST if the name of a BROKER_LOGGER resource is not this broker's id. what: what the error calls
    the name. If it is, the callers answer with an empty list, because this broker has no loggers to configure.
    """
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")
    _check_broker_id(broker, name, what, "expected {}")


def _is_int32(text: str) -> bool:
    """Return whether Java would parse the text as an int. Checks its length first: Python refuses long numbers."""
    if len(text) > 200 or not text.removeprefix("-").removeprefix("+").isdecimal():
        return False
    return text[:2] != "-+" and -(2**31) <= int(text) < 2**31


def _describe(row: Option, synonyms: _Synonyms, request: DescribeConfigsRequest, kind: int) -> _Described:
    """Return one config as the response has it: value, source and, if wanted, synonyms and documentation."""
    _, value, source = synonyms[0]
    return _Described(
        name=row.name,
        value=None if row.is_secret else value,
        read_only=kind == BROKER and not row.dynamic,
        config_source=source,
        is_sensitive=row.is_secret,
        synonyms=[
            _Described.Synonym(name=name, value=None if row.is_secret else text, source=of)
            for name, text, of in synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=row.type,
        documentation=row.doc if request.include_documentation else None,
    )


# ---- changing ------------------------------------------------------------------------------------------------


@handles(AlterConfigsRequest, may_be_long=True)
def alter_configs(broker: Services, call: Call, request: AlterConfigsRequest) -> Steps[AlterConfigsResponse]:
    """Replace all settings of each resource."""
    doubled = _find_duplicates(request.resources)

    def alter(each: AlterConfigsRequest.Resource) -> AlterConfigsResponse.Resource:
        """Replace all settings of one resource, or return the error code and text of its refusal."""
        code, text = _alter_or_refuse(broker, call, each, _replacing(each), doubled, request.validate_only)
        return AlterConfigsResponse.Resource(
            error_code=code, error_message=text, resource_type=each.resource_type, resource_name=each.resource_name
        )

    return AlterConfigsResponse(responses=(yield from answer_each(request.resources, alter, SUBJECT_UNITS)))


@handles(IncrementalAlterConfigsRequest, may_be_long=True)
def incremental_alter_configs(
    broker: Services, call: Call, request: IncrementalAlterConfigsRequest
) -> Steps[IncrementalAlterConfigsResponse]:
    """Change some settings of each resource."""
    doubled = _find_duplicates(request.resources)

    def alter(each: IncrementalAlterConfigsRequest.Resource) -> IncrementalAlterConfigsResponse.Resource:
        """Apply the changes to single settings of one resource, or return the error code and text of its refusal."""
        code, text = _alter_or_refuse(broker, call, each, _changing(each), doubled, request.validate_only)
        return IncrementalAlterConfigsResponse.Resource(
            error_code=code, error_message=text, resource_type=each.resource_type, resource_name=each.resource_name
        )

    return IncrementalAlterConfigsResponse(responses=(yield from answer_each(request.resources, alter, SUBJECT_UNITS)))


_Resource = AlterConfigsRequest.Resource | IncrementalAlterConfigsRequest.Resource
_Change = AlterConfigsRequest.Resource.Config | IncrementalAlterConfigsRequest.Resource.Config


def _find_duplicates(resources: Iterable[_Resource]) -> set[tuple[int, str]]:
    """Return the (type, name) of resources that a request names more than once."""
    times = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    return {resource for resource, count in times.items() if count > 1}


def _alter_or_refuse(
    broker: Services, call: Call, resource: _Resource, merge: _Merge, doubled: set[tuple[int, str]], validate_only: bool
) -> tuple[int, str | None]:
    """Change the configs of one resource. Returns (error code, error message) for its answer."""
    try:
        if (resource.resource_type, resource.resource_name) in doubled:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        _check_entries(resource)
        if resource.resource_type == BROKER and resource.resource_name:
            _check_broker_id(broker, resource.resource_name, "Node id", "expected {}")
        _check_access(broker, call, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
        _alter(broker, resource, merge, validate_only)
    except KafkaError as error:
        return error.code, error.text
    return ErrorCode.NONE, None


def _check_entries(resource: _Resource) -> None:
    """Raise INVALID_REQUEST if the request names a config twice or gives it no value."""
    names = Counter(config.name for config in resource.configs)
    if any(count > 1 for count in names.values()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    missing = [
        config.name
        for config in resource.configs
        if config.value is None and getattr(config, "config_operation", SET) != DELETE
    ]
    if missing:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}")


def _alter(broker: Services, resource: _Resource, merge: _Merge, validate_only: bool) -> None:
    """Change the configs of one topic, group or broker. Raises the error for the response."""
    if resource.resource_type == TOPIC:
        _alter_topic(broker, resource.resource_name, merge, validate_only)
    elif resource.resource_type == GROUP:
        _alter_group(broker, resource.resource_name, merge, validate_only)
    elif resource.resource_type == BROKER:
        _alter_broker(broker, resource, merge, validate_only)
    elif resource.resource_type == BROKER_LOGGER:
        _check_logged_broker(broker, resource.resource_name, "Node id")
        if resource.configs:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {resource.configs[0].name} does not exist!")
    elif resource.resource_type == CLIENT_METRICS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "there are no client metrics subscriptions here")
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")


def _alter_topic(broker: Services, name: str, merge: _Merge, validate_only: bool) -> None:
    """Change a topic's settings, or only check that. Raises KafkaError. merge(stored, options): the new settings."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    topic = _topic(broker, name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    configs = merge(topic.configs, TOPIC_OPTIONS)
    if validate_only:
        broker.topics.check_configs(topic, configs)
    else:
        broker.topics.alter_configs(topic, configs)


def _alter_group(broker: Services, name: str, merge: _Merge, validate_only: bool) -> None:
    """Change a group's settings, or only check that. Raises KafkaError. merge(stored, options): the new settings."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    configs = merge(broker.group_configs.given(name), GROUP_OPTIONS)
    if validate_only:
        broker.group_configs.check(configs)
    else:
        broker.group_configs.alter(name, configs)


def _alter_broker(broker: Services, resource: _Resource, merge: _Merge, validate_only: bool) -> None:
    """Change a broker's settings, or only check that. Raises KafkaError. merge(stored, options): the new settings."""
    name = resource.resource_name
    kept = broker.topics.broker_configs(name)
    _check_settable([config.name for config in resource.configs if not _takes_away(config, kept)])
    try:
        configs = merge(kept, {**NO_EFFECT, **BROKER_OPTIONS})
        if name not in ("", str(broker.node_id)) and not configs.items() <= kept.items():
            text = f"Unexpected broker id, expected {broker.node_id}, but received {name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)  # what is kept of another may only be removed
        for config in resource.configs:
            if config.name in SETTABLE and config.name in configs:
                check_ignored_option(config.name, configs[config.name], name)
        if validate_only:
            broker.topics.check_broker_configs(name, configs)
        else:
            broker.topics.alter_broker_configs(name, configs)
    except InvalidOption as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _takes_away(config: _Change, kept: Mapping[str, str]) -> bool:
    """Return whether the change is a DELETE that is always allowed: of a value that is stored, of a listener's setting,
    or of any other name that is not _is_fixed().
    """
    removes = getattr(config, "config_operation", SET) == DELETE
    return removes and (config.name in kept or config.name.startswith(OVERRIDE) or not _is_fixed(config.name))


def _check_settable(names: Sequence[str]) -> None:
    """Raise INVALID_REQUEST if one of these settings cannot be set at runtime, or is unknown.

    Kafka stores unknown names, for plug-ins, and treats their values as secret. There are no plug-ins here.
    """
    fixed = [name for name in names if _is_fixed(name)]
    if fixed:
        text = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    unknown = next((name for name in names if name not in BROKER_OPTIONS and name not in SETTABLE), None)
    if unknown is not None:
        known = sorted(SETTABLE | accepted_names().keys())
        meant = nearest(unknown.lower(), known) if len(unknown) <= LONGEST_NAME else None
        hint = f" (did you mean {meant}?)" if meant else ""
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown broker config name: {unknown}{hint}")


def _is_fixed(name: str) -> bool:
    """Return whether a broker setting cannot be changed while the broker runs."""
    if name in BROKER_OPTIONS:
        return not BROKER_OPTIONS[name].dynamic
    if name in accepted_names() or name.startswith(OVERRIDE):
        return True
    return is_harmless(name) and name not in SETTABLE


def _replacing(resource: AlterConfigsRequest.Resource) -> _Merge:
    """Return a function that replaces all stored settings by the request's."""
    return lambda before, options: {config.name: config.value or "" for config in resource.configs}


def _changing(resource: IncrementalAlterConfigsRequest.Resource) -> _Merge:
    """Return a function that applies the request's changes to the stored settings."""

    def merge(before: Mapping[str, str], options: Mapping[str, Option]) -> dict[str, str]:
        """Return the stored settings with the request's changes applied."""
        after = dict(before)
        for config in resource.configs:
            _change(after, config, options)
        return after

    return merge


def _change(
    configs: dict[str, str], change: IncrementalAlterConfigsRequest.Resource.Config, options: Mapping[str, Option]
) -> None:
    """Apply one incremental operation (SET, DELETE, APPEND, SUBTRACT) to the configs. Raises KafkaError."""
    name, operation = change.name, change.config_operation
    if operation == DELETE:
        configs.pop(name, None)
    elif operation == SET:
        configs[name] = change.value or ""
    elif operation in (APPEND, SUBTRACT):
        row = options.get(name)
        if row is not None and row.type is not ConfigType.LIST:
            verb = "APPEND to" if operation == APPEND else "SUBTRACT from"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Can't {verb} key {name} because its type is not LIST.")
        configs[name] = _change_list(configs.get(name), change, row)
    else:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation} for {name}")


def _change_list(now: str | None, change: IncrementalAlterConfigsRequest.Resource.Config, row: Option | None) -> str:
    """Return a list setting, as text, with the change's entries added or removed.

    now: its present text; None to begin with its default.
    """
    default = row.default if row is not None and isinstance(row.default, tuple) else ()
    entries = list(default) if now is None else _entries(now)
    named = _entries(change.value or "")
    if change.config_operation == SUBTRACT:
        taken = frozenset(named)
        return ",".join(entry for entry in entries if entry not in taken)
    return ",".join(dict.fromkeys([*entries, *named]))


def _entries(text: str) -> list[str]:
    """Split a list setting at commas, without blanks."""
    return list(filter(None, map(str.strip, text.split(","))))
