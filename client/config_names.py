"""Settings by the names of Java's client and librdkafka: `{"bootstrap.servers": …, "enable.idempotence": True}`. Pure.

The rule: a name that has a meaning here is accepted, with its unit and its values. An unknown name is an error with the
most similar name, because silently dropping a requested guarantee is worse than an error. A name is ignored only if it
affects no record, offset or guarantee, or if its value is how this client works anyway. One default differs from our
own keywords: a consumer with a group commits automatically, as in all other clients.
"""

import functools
import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from .addresses import Bootstrap
from .errors import InvalidConfigurationError
from .security import Token
from .setting_checks import INT32_MAX
from .settings import (
    CODECS,
    ConnectionSettings,
    ConsumerSettings,
    ProducerSettings,
    keywords_of,
    nearest,
    settings_of,
)

S = TypeVar("S", bound=ConnectionSettings)

BOOTSTRAP = ("bootstrap.servers", "metadata.broker.list")

_NAMES = {  # names that are not our keyword with dots for underscores
    "batch.size": "max_batch_size",
    "batch.num.bytes": "max_batch_size",
    "check.crcs": "check_crcs",
    "client.rack": "client_rack",
    "compression.codec": "compression_type",
    "default.api.timeout.ms": "default_api_timeout_ms",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "fetch.min.bytes": "fetch_min_bytes",
    "fetch.message.max.bytes": "max_partition_fetch_bytes",
    "fetch.wait.max.ms": "fetch_max_wait_ms",
    "group.instance.id": "group_instance_id",
    "isolation.level": "isolation_level",
    "max.in.flight": "max_in_flight",
    "max.in.flight.requests.per.connection": "max_in_flight",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "message.max.bytes": "max_request_size",
    "message.send.max.retries": "retries",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.password": "sasl_plain_password",
    "sasl.username": "sasl_plain_username",
    "share.acknowledgement.mode": "acknowledgement",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "socket.timeout.ms": "request_timeout_ms",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.keystore.certificate.chain": "ssl_certificate_pem",
    "ssl.keystore.key": "ssl_key_pem",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.truststore.certificates": "ssl_ca_pem",
    "ssl.truststore.location": "ssl_cafile",
    "topic.metadata.refresh.interval.ms": "metadata_max_age_ms",
}
_OURS_ALONE = {  # keywords that no other client has with dots
    "acknowledgement",
    "strict",
    "connect_timeout_ms",
    "max_batch_size",
    "max_decompressed_bytes",
    "sasl_oauth_token_provider",
    "sasl_plain_password",
    "sasl_plain_username",
    "start_timeout_ms",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_context",
    "ssl_keyfile",
    "ssl_password",
}
_FOR_ITS_GROUP = "set it for the group: Admin.alter_configs(group=…), or fencepost group alter"
_OF_SHARE_GROUPS = {  # settings of consumers, with what to do instead: the group of a share consumer has them
    "auto.offset.reset": "give auto_offset_reset to the consumer, which sets it where the group has none",
    "heartbeat.interval.ms": _FOR_ITS_GROUP,
    "isolation.level": _FOR_ITS_GROUP,
    "session.timeout.ms": _FOR_ITS_GROUP,
}
_SAME_IN_ANY_CASE = """
api.version.fallback.ms api.version.request api.version.request.timeout.ms auto.include.jmx.reporter
batch.num.messages broker.address.family broker.address.ttl broker.version.fallback client.software.name
client.software.version consume.callback.max.messages coordinator.query.interval.ms debug
delivery.report.only.error enable.metrics.push enable.random.seed enable.sparse.connections
fetch.error.backoff.ms fetch.queue.backoff.ms log.connection.close log.queue log.thread.name log_level
message.copy.max.bytes metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
metadata.recovery.strategy metadata.request.timeout.ms metrics.num.samples metrics.recording.level
metrics.sample.window.ms partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
produce.offset.report queue.buffering.backpressure.threshold
queued.min.messages receive.buffer.bytes
reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms send.buffer.bytes
socket.blocking.max.ms socket.connection.setup.timeout.max.ms socket.keepalive.enable socket.max.fails
socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes ssl.keymanager.algorithm
ssl.trustmanager.algorithm statistics.interval.ms sticky.partitioning.linger.ms
topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
topic.metadata.refresh.sparse
"""  # the values of these do not affect records, offsets or guarantees
_IGNORED = frozenset(_SAME_IN_ANY_CASE.split())
_ALWAYS: dict[str, tuple[str, ...]] = {  # the only accepted values: how this client works anyway; "": not set
    "client.dns.lookup": ("use_all_dns_ips", "default"),
    "config.providers": ("",),
    "enable.gapless.guarantee": ("false",),
    "enable.partition.eof": ("false",),
    "exclude.internal.topics": ("true",),
    "group.protocol.type": ("consumer",),
    "interceptor.classes": ("",),
    "metric.reporters": ("", "org.apache.kafka.common.metrics.jmxreporter"),
    "offset.store.method": ("broker",),
    "partitioner.ignore.keys": ("false",),
    "queuing.strategy": ("fifo",),
    "security.providers": ("",),
    "ssl.engine.factory.class": ("",),
    "ssl.keystore.type": ("pem",),
    "ssl.truststore.type": ("pem",),
    "transaction.two.phase.commit.enable": ("false",),
}
_CONSUMERS_ALONE = frozenset({"group.protocol", "group.remote.assignor"})  # other clients ignore them
_LEVELS = {f"compression.{codec}.level": codec for codec in CODECS}  # Java's names, one for each codec
_JVM = "org.apache.kafka.common.serialization."
_JVM_CLASSES: dict[str, Callable[[Any], Any] | None] = {
    "ByteArraySerializer": None,
    "ByteArrayDeserializer": None,
    "StringSerializer": lambda text: text.encode(),
    "StringDeserializer": lambda value: value.decode(),
}
_RESETS = {"smallest": "earliest", "beginning": "earliest", "largest": "latest", "end": "latest", "error": "none"}
_STRATEGIES = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_JAAS = re.compile(r"""(\w+)\s*=\s*(?:(["'])((?:\\.|(?!\2)[^\\])*)\2|([^\s;"']+))""")
_TRUE_OR_FALSE = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def names_of(keyword: str) -> list[str]:
    """Return the names of a setting that from_config accepts: Java's first, then librdkafka's."""
    names = [] if keyword in _OURS_ALONE else [keyword.replace("_", ".")]
    names += [name for name, one in _NAMES.items() if one == keyword]
    names += [name for name, (one, _) in _CONVERTED.items() if one == keyword]
    return list(dict.fromkeys(names))


def settings_from(cls: type[S], config: Mapping[str, Any]) -> S:
    """Return the settings for this configuration. Raises InvalidConfigurationError."""
    left = dict(config)
    servers: Bootstrap = ""
    for name in BOOTSTRAP:
        servers = left.pop(name, "") or servers
    known = keywords_of(cls)
    keywords: dict[str, Any] = {}
    oauth_config = left.pop("sasl.oauthbearer.config", "")
    if callable(left.get("oauth_cb")):
        left["oauth_cb"] = functools.partial(_librdkafka_token, left["oauth_cb"], str(oauth_config))
    for name, value in left.items():
        _take(name, value, known, keywords)
    for name, codec in _LEVELS.items():
        if name in left and keywords.get("compression_type") == codec:  # as in Java, levels of other codecs are ignored
            keywords["compression_level"] = _level(left[name])
    if "enable_auto_commit" in known:
        keywords.setdefault("enable_auto_commit", keywords.get("group_id") is not None)
    return settings_of(cls, servers, keywords)


def part_for(cls: type[ConnectionSettings], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration without the settings that this kind of client lacks and a producer or consumer has.

    A program that has one configuration for all its clients calls this for each of them. Names that no client of ours
    has stay in, and are refused later.
    """
    known = keywords_of(cls)
    others = (keywords_of(ProducerSettings) | keywords_of(ConsumerSettings)) - known
    foreign = {name for keyword in others for name in (*names_of(keyword), keyword.replace("_", "."))}
    return {name: value for name, value in config.items() if name not in foreign}


def _take(name: str, value: Any, known: set[str], keywords: dict[str, Any]) -> None:
    """Convert one setting with a dotted name and add it to `keywords`. Raises InvalidConfigurationError if the setting
    is unknown or not supported.
    """
    if name in _IGNORED or (name in _LEVELS and "compression_level" in known):
        return
    if name in _ALWAYS:
        _check_always(name, value)
        return
    if name in _CONSUMERS_ALONE and "group_protocol" not in known:
        return
    if name == "enable.auto.offset.store" and "enable_auto_commit" in known:
        _auto_offset_store(value)
        return
    if name == "enable.ssl.certificate.verification":
        _check_verification(value)
    elif name == "sasl.jaas.config":
        keywords.update(_jaas(str(value)))
    elif name in _CONVERTED and _CONVERTED[name][0] in known:
        keyword, convert = _CONVERTED[name]
        keywords[keyword] = convert(value)
    else:
        keyword = _NAMES.get(name, name.replace(".", "_"))
        if keyword not in known:
            if "acknowledgement" in known and (of_group := _OF_SHARE_GROUPS.get(name.removeprefix("share."))):
                raise InvalidConfigurationError(
                    f"{name!r} is no setting of a share consumer: its group has share.{name.removeprefix('share.')}",
                    hint=of_group,
                )
            raise InvalidConfigurationError(f"there is no setting {name!r}{_nearest(name, known)}")
        keywords[keyword] = _value(keyword, value)


def _nearest(name: str, known: set[str]) -> str:
    """Return a hint with the known setting name that is most similar; "" if none is."""
    names = {one.replace("_", ".") for one in known}
    names |= {alias for alias, keyword in _NAMES.items() if keyword in known}
    names |= {alias for alias, (keyword, _) in _CONVERTED.items() if keyword in known}
    return nearest(name, [*names, *BOOTSTRAP])


def _value(keyword: str, value: Any) -> Any:
    """Return the value of a setting; a text from a configuration file is converted."""
    if keyword == "partition_assignment_strategy":
        return _strategies(value.split(",") if isinstance(value, str) else value)
    if keyword in ("enable_idempotence", "enable_auto_commit", "check_crcs", "allow_auto_create_topics"):
        return _truth(keyword, value)
    if not isinstance(value, str):
        return value
    if keyword == "group_protocol":
        return value.lower()
    if keyword == "group_remote_assignor":
        return value or None
    if keyword == "auto_offset_reset":
        return _RESETS.get(value.lower(), value.lower())
    if keyword == "acks":
        return "all" if value == "all" else _number(keyword, value)
    if keyword in _SERIALIZERS:
        return _jvm_class(keyword, value)
    if keyword.endswith(("_ms", "_bytes", "_size", "_memory", "_records")) or keyword in ("retries", "max_in_flight"):
        return _number(keyword, value)
    return value


def _check_always(name: str, value: Any) -> None:
    """Raise InvalidConfigurationError unless the value is one that _ALWAYS lists for this setting. The setting cannot
    be changed here; a value is accepted only if it describes what the client does in any case.
    """
    text = "" if value is None or value == [] else str(value).lower()
    if text not in _ALWAYS[name]:
        known = " or ".join(repr(one) for one in _ALWAYS[name] if one)
        raise InvalidConfigurationError(
            f"{name}={value!r} is not supported",
            hint=f"leave it out, or {known}" if known else "leave it out",
        )


def _auto_offset_store(value: Any) -> None:
    """Raise InvalidConfigurationError if `enable.auto.offset.store` is false, which this client does not support."""
    if not _truth("enable.auto.offset.store", value):
        raise InvalidConfigurationError(
            "enable.auto.offset.store=False is not supported: offsets cannot be stored for the automatic commit",
            hint="set enable.auto.commit=False, and call commit(batch.offsets) after each batch",
        )


def _level(value: Any) -> Any:
    """Return the compression level as an int; None for -1, which is the codec's default in librdkafka and Java."""
    level = _number("compression.level", value) if isinstance(value, str) else value
    return None if level == -1 else level


def _jvm_class(keyword: str, value: str) -> Callable[[Any], Any] | None:
    """Return the function that replaces this Java class; None if bytes are to stay as they are. Raises
    InvalidConfigurationError for any other text.
    """
    name = value.removeprefix(_JVM)
    if name not in _JVM_CLASSES:
        raise InvalidConfigurationError(
            f"{keyword.replace('_', '.')}={value!r} is not a function",
            hint=f"pass a function, or one of {', '.join(_JVM_CLASSES)}",
        )
    return _JVM_CLASSES[name]


def _number(keyword: str, value: str) -> int:
    """Return the setting's text as an int. Raises InvalidConfigurationError."""
    try:
        return int(value)
    except ValueError:
        raise InvalidConfigurationError(f"{keyword}={value!r} must be an int") from None


def _truth(keyword: str, value: Any) -> bool:
    """Return true or false. Raises InvalidConfigurationError for any other value."""
    if isinstance(value, bool):
        return value
    found = _TRUE_OR_FALSE.get(str(value).lower())
    if found is None:
        raise InvalidConfigurationError(f"{keyword}={value!r} must be true or false")
    return found


def _strategies(listed: Iterable[object]) -> tuple[str, ...]:
    """Convert names of assignors: of a Java class the part after the last dot, and from that the name used here."""
    names = [str(one).strip().rpartition(".")[2] for one in listed]
    return tuple(_STRATEGIES.get(name, name) for name in names)


def _jaas(text: str) -> dict[str, str]:
    """Return user name and password from Java's JAAS text; nothing if a token takes their place. Raises
    InvalidConfigurationError.
    """
    if "OAuthBearerLoginModule" in text:
        return {}
    found = {key: re.sub(r"\\(.)", r"\1", quoted) or word for key, _, quoted, word in _JAAS.findall(text)}
    if not found.keys() >= {"username", "password"}:
        raise InvalidConfigurationError('sasl.jaas.config must contain username="…" and password="…"')
    return {"sasl_plain_username": found["username"], "sasl_plain_password": found["password"]}


def _librdkafka_token(provide: Callable[[str], Any], config: str) -> Token:
    """Return the token of confluent-kafka's oauth_cb, which gives the token, its expiry in seconds since 1970, and
    maybe more.
    """
    token, expires, *_ = provide(config)
    return Token(token, expires * 1000)


def _provider(value: Any) -> Any:
    """Return the token provider: a function, or the function to import by this name, as options of Spark give it."""
    if not isinstance(value, str):
        return value
    module, _, name = value.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidConfigurationError(
            f"sasl.oauth.token.provider={value!r} cannot be imported: {error}", hint="write package.module:function"
        ) from None


def _extensions(value: Any) -> Any:
    """Return SASL extensions as a dict, from NAME=VALUE separated by commas. Raises InvalidConfigurationError."""
    if not isinstance(value, str):
        return value
    pairs = [part.partition("=") for part in value.split(",") if part.strip()]
    if not all(equals for _, equals, _ in pairs):
        raise InvalidConfigurationError("sasl.oauthbearer.extensions must be NAME=VALUE, with commas between several")
    return {name.strip(): text for name, _, text in pairs}


def _identification(value: Any) -> bool:
    return str(value or "").lower() not in ("", "none")


def _kilobytes(value: Any) -> int:
    return min(int(value) * 1024, INT32_MAX)


def _check_verification(value: Any) -> None:
    """Raise InvalidConfigurationError if a setting turns off the verification of certificates."""
    if not _truth("enable.ssl.certificate.verification", value):
        raise InvalidConfigurationError(
            "certificates are always verified", hint="pass your own ssl_context to turn that off"
        )


def _idle(value: Any) -> Any:
    """Return the idle timeout in ms; 0 in librdkafka and a negative number in Java mean: never close."""
    idle_ms = _number("connections.max.idle.ms", value) if isinstance(value, str) else value
    return INT32_MAX if isinstance(idle_ms, int) and idle_ms <= 0 else idle_ms


def _delivery(value: Any) -> Any:
    """Return message.timeout.ms as our delivery timeout in ms; 0 means no limit."""
    return (_number("message.timeout.ms", value) if isinstance(value, str) else value) or INT32_MAX


def _linger(value: Any) -> Any:
    """Return linger.ms as a number; librdkafka accepts fractions of a millisecond. Raises InvalidConfigurationError."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        raise InvalidConfigurationError(f"linger.ms={value!r} must be a number") from None


_SERIALIZERS = ("key_serializer", "value_serializer", "key_deserializer", "value_deserializer")
_CONVERTED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "compression.level": ("compression_level", _level),
    "connections.max.idle.ms": ("connections_max_idle_ms", _idle),
    "linger.ms": ("linger_ms", _linger),
    "message.timeout.ms": ("delivery_timeout_ms", _delivery),
    "queue.buffering.max.ms": ("linger_ms", _linger),
    "queue.buffering.max.kbytes": ("buffer_memory", _kilobytes),
    "oauth_cb": ("sasl_oauth_token_provider", lambda provide: provide),
    "sasl.oauth.token.provider": ("sasl_oauth_token_provider", _provider),
    "sasl.oauthbearer.extensions": ("sasl_oauthbearer_extensions", _extensions),
    "security.protocol": ("security_protocol", lambda value: str(value).upper()),
    "share.acquire.mode": ("strict", lambda value: str(value).lower() == "record_limit"),
    "ssl.endpoint.identification.algorithm": ("ssl_check_hostname", _identification),
}
