"""The settings of clients: names, defaults, and rules between settings. Pure.

The rule: every settings object is valid; its constructor raises for invalid values, with a hint. Names are those of
aiokafka where it has the setting. Source: Kafka's ProducerConfig, ConsumerConfig; KIP-98, KIP-679, KIP-735.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from .addresses import Address, Bootstrap, addresses_of
from .errors import InvalidConfigurationError
from .partitioner import PARTITIONERS, Partitioner
from .security import Mechanism, Security, SecurityProtocol, TokenProvider
from .serialization import HasDeserialize, HasSerialize, way_of

if TYPE_CHECKING:
    import ssl
    from typing import Unpack

Acks = Literal["all", -1, 0, 1]
Codec = Literal["gzip", "snappy", "lz4", "zstd"]
IsolationLevel = Literal["read_committed", "read_uncommitted"]
OffsetReset = Literal["earliest", "latest", "none"]
Assignor = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]
GroupProtocol = Literal["classic", "consumer"]
Serializer = Callable[[Any], bytes | None] | Callable[[Any, Any], bytes | None] | HasSerialize
Deserializer = Callable[[bytes], Any] | Callable[[bytes, Any], Any] | HasDeserialize

MOST_IN_FLIGHT = 5  # a broker remembers the last five batches of a producer in a partition
INT32_MAX = 2**31 - 1
LEAST_DECOMPRESSED_LIMIT = 128 << 20
CODECS = ("gzip", "snappy", "lz4", "zstd")
LEVELS = {"gzip": (1, 9), "zstd": (1, 22)}
"""The lowest and highest compression_level of a codec; snappy and lz4 have no levels here."""
CLASSIC, CONSUMER = "classic", "consumer"
"""The values of group_protocol: members assign partitions, or the broker does (KIP-848)."""
SET_BY_THE_BROKER = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")
"""What a consumer cannot choose with group_protocol="consumer"."""
ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The settings of every client. Times are milliseconds."""

    bootstrap_servers: tuple[Address, ...]
    client_id: str = "fencepost"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    start_timeout_ms: int | None = None  # None: 3 seconds, or connect_timeout_ms if that is less
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    default_api_timeout_ms: int = 60_000
    allow_auto_create_topics: bool = True
    security: Security = field(default_factory=Security)

    def __post_init__(self) -> None:
        _set(self, "bootstrap_servers", addresses_of(self.bootstrap_servers))
        _check_positive(self, ("request_timeout_ms", "connect_timeout_ms", "retry_backoff_ms"))
        _check_positive(self, ("retry_backoff_max_ms", "metadata_max_age_ms", "default_api_timeout_ms"))
        _check_positive(
            self, ("connections_max_idle_ms", *(["start_timeout_ms"] if self.start_timeout_ms is not None else []))
        )
        _check_true_or_false(self)
        if not _is_sendable(self.client_id):
            raise InvalidConfigurationError("client_id must be a str of at most 32,767 bytes")


@dataclass(frozen=True, slots=True)
class ProducerSettings(ConnectionSettings):
    """acks: -1 (all), 0 or 1. Sizes are bytes."""

    transactional_id: str | None = None
    enable_idempotence: bool = True
    acks: Acks | None = None  # None: all
    retries: int | None = None  # None: until delivery_timeout_ms
    max_in_flight: int = MOST_IN_FLIGHT
    linger_ms: float = 0
    max_batch_size: int = 131_072
    buffer_memory: int = 33_554_432
    max_request_size: int = 1_048_576
    compression_type: Codec | None = None
    compression_level: int | None = None  # None: the codec's default
    delivery_timeout_ms: int = 120_000
    max_block_ms: int = 60_000
    transaction_timeout_ms: int = 60_000
    partitioner: str | Partitioner | None = None
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None

    def __post_init__(self) -> None:
        ConnectionSettings.__post_init__(self)
        _check_idempotence(self)
        acks = -1 if self.acks in (None, "all", "-1") else self.acks
        if acks not in (-1, 0, 1) or isinstance(acks, bool):
            raise InvalidConfigurationError(f"acks={self.acks!r} is not valid", hint='use "all", 1 or 0')
        _set(self, "acks", acks)
        _set(self, "retries", INT32_MAX if self.retries is None else self.retries)
        if str(self.compression_type) == "none":  # the name in other clients
            _set(self, "compression_type", None)
        _check_one_of(self, "compression_type", (None, *CODECS))
        _check_level(self)
        _check_serializers(self, "serialize")
        if isinstance(self.partitioner, str):
            _check_one_of(self, "partitioner", PARTITIONERS)
        else:
            _check_callable(self, ("partitioner",))
        _check_positive(self, ("max_in_flight", "max_batch_size", "buffer_memory", "max_request_size"))
        _check_positive(self, ("delivery_timeout_ms", "transaction_timeout_ms"))
        _check_not_negative(self, ("linger_ms", "max_block_ms", "retries"))

    @property
    def required_acks(self) -> int:
        """acks as the number in a request."""
        assert isinstance(self.acks, int)
        return self.acks

    @property
    def most_retries(self) -> int:
        assert self.retries is not None
        return self.retries


@dataclass(frozen=True, slots=True)
class ConsumerSettings(ConnectionSettings):
    """auto_offset_reset: None means "none", whose error has a hint. Sizes are bytes."""

    allow_auto_create_topics: bool = False  # a consumer does not create the topics that it reads
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: GroupProtocol = "classic"
    group_remote_assignor: str | None = None  # None: the broker's first
    client_rack: str = ""
    isolation_level: IsolationLevel = "read_committed"
    auto_offset_reset: OffsetReset | None = None
    enable_auto_commit: bool = False
    auto_commit_interval_ms: int = 5_000
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    max_decompressed_bytes: int | None = None  # of one batch; None: twice fetch_max_bytes, and at least 128 MiB
    max_poll_records: int = 500
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    partition_assignment_strategy: tuple[Assignor, ...] = ("range", "cooperative-sticky")
    check_crcs: bool = True
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None

    def __post_init__(self) -> None:
        ConnectionSettings.__post_init__(self)
        _set(self, "auto_offset_reset", self.auto_offset_reset or "none")
        strategies: object = self.partition_assignment_strategy
        if isinstance(strategies, str):
            _set(self, "partition_assignment_strategy", (strategies,))
        _set(self, "partition_assignment_strategy", tuple(self.partition_assignment_strategy))
        for strategy in self.partition_assignment_strategy:
            if strategy not in ASSIGNORS:
                raise InvalidConfigurationError(
                    f"partition_assignment_strategy {strategy!r} is not known",
                    hint=f"use any of {', '.join(ASSIGNORS)}",
                )
        _check_one_of(self, "isolation_level", ("read_committed", "read_uncommitted"))
        _check_one_of(self, "auto_offset_reset", ("earliest", "latest", "none"))
        _check_positive(self, ("fetch_max_bytes", "max_partition_fetch_bytes", "max_poll_records"))
        if self.max_decompressed_bytes is not None:
            _check_positive(self, ("max_decompressed_bytes",))
        _check_positive(self, ("max_poll_interval_ms", "session_timeout_ms", "heartbeat_interval_ms"))
        _check_positive(self, ("auto_commit_interval_ms",))
        _check_not_negative(self, ("fetch_min_bytes", "fetch_max_wait_ms"))
        _check_serializers(self, "deserialize")
        _check_group(self)

    @property
    def decompressed_limit(self) -> int:
        """The largest size of the records of one batch, decompressed."""
        return self.max_decompressed_bytes or max(LEAST_DECOMPRESSED_LIMIT, 2 * self.fetch_max_bytes)


@dataclass(frozen=True, slots=True)
class AdminSettings(ConnectionSettings):
    """Only the settings of every client."""

    allow_auto_create_topics: bool = False


def _check_idempotence(settings: ProducerSettings) -> None:
    """S-48 … S-54 of docs/requirements.md: settings that contradict idempotence are errors."""
    if settings.transactional_id is not None:
        if not settings.transactional_id:
            raise InvalidConfigurationError("transactional_id is empty")
        _check_sendable(settings, ("transactional_id",))
        if not settings.enable_idempotence:
            raise InvalidConfigurationError(
                "Cannot set a transactional_id without also enabling idempotence.", hint="leave out enable_idempotence"
            )
    if not settings.enable_idempotence:
        return
    if settings.acks not in (None, "all", -1, "-1"):
        raise InvalidConfigurationError(
            "Must set acks to all in order to use the idempotent producer. Otherwise we cannot guarantee idempotence.",
            hint=f"leave out acks={settings.acks!r}, or set enable_idempotence=False and lose the guarantee",
        )
    if settings.retries == 0:
        raise InvalidConfigurationError(
            "Must set retries to non-zero when using the idempotent producer.",
            hint="leave out retries: delivery_timeout_ms bounds them",
        )
    if settings.max_in_flight > MOST_IN_FLIGHT:
        raise InvalidConfigurationError(
            f"Must set max_in_flight to at most {MOST_IN_FLIGHT} to use the idempotent producer.",
            hint=f"a broker remembers the last {MOST_IN_FLIGHT} batches of a producer in a partition",
        )


def _check_group(settings: ConsumerSettings) -> None:
    if settings.group_id == "":
        raise InvalidConfigurationError("group_id is empty", hint="leave it out to read without a group")
    if settings.group_instance_id == "":
        raise InvalidConfigurationError(
            "group_instance_id is empty: all members would be the same one", hint="leave it out for a dynamic member"
        )
    _check_sendable(settings, ("group_id", "group_instance_id", "group_remote_assignor", "client_rack"))
    _set(settings, "group_protocol", str(settings.group_protocol).lower())
    _check_one_of(settings, "group_protocol", (CLASSIC, CONSUMER))
    if settings.group_remote_assignor is not None and settings.group_protocol != CONSUMER:
        raise InvalidConfigurationError(
            "group_remote_assignor needs the group protocol in which the broker assigns partitions",
            hint='set group_protocol="consumer", or use partition_assignment_strategy',
        )
    if settings.group_id is None and settings.enable_auto_commit:
        raise InvalidConfigurationError("enable_auto_commit needs a group_id")
    if settings.group_id is None and settings.group_instance_id is not None:
        raise InvalidConfigurationError("group_instance_id needs a group_id")
    if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        raise InvalidConfigurationError(
            "heartbeat_interval_ms must be below session_timeout_ms", hint="use a third of it or less"
        )


# ---- keywords ------------------------------------------------------------------------------------------------------


class ConnectionKeywords(TypedDict, total=False):
    """The keywords of every client."""

    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int
    start_timeout_ms: int | None
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    connections_max_idle_ms: int
    default_api_timeout_ms: int
    allow_auto_create_topics: bool
    security_protocol: SecurityProtocol
    ssl_context: "ssl.SSLContext | None"
    ssl_cafile: str | None
    ssl_ca_pem: str | None
    ssl_certfile: str | None
    ssl_certificate_pem: str | None
    ssl_keyfile: str | None
    ssl_key_pem: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: Mechanism | None
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | None
    sasl_oauthbearer_extensions: Mapping[str, str] | None


class ProducerKeywords(ConnectionKeywords, total=False):
    transactional_id: str | None
    enable_idempotence: bool
    acks: Acks
    retries: int
    max_in_flight: int
    linger_ms: float
    max_batch_size: int
    buffer_memory: int
    max_request_size: int
    compression_type: Codec | None
    compression_level: int | None
    delivery_timeout_ms: int
    max_block_ms: int
    transaction_timeout_ms: int
    partitioner: str | Partitioner | None
    key_serializer: Serializer | None
    value_serializer: Serializer | None


class ConsumerKeywords(ConnectionKeywords, total=False):
    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    client_rack: str
    isolation_level: IsolationLevel
    auto_offset_reset: OffsetReset | None
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_decompressed_bytes: int | None
    max_poll_records: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    partition_assignment_strategy: Sequence[Assignor]
    check_crcs: bool
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None


SECURITY_KEYWORDS = {
    "security_protocol": "protocol",
    "ssl_context": "context",
    "ssl_cafile": "ca_file",
    "ssl_ca_pem": "ca_pem",
    "ssl_certfile": "certificate_file",
    "ssl_certificate_pem": "certificate_pem",
    "ssl_keyfile": "key_file",
    "ssl_key_pem": "key_pem",
    "ssl_password": "key_password",
    "ssl_check_hostname": "check_hostname",
    "sasl_mechanism": "mechanism",
    "sasl_plain_username": "username",
    "sasl_plain_password": "password",
    "sasl_oauth_token_provider": "token_provider",
    "sasl_oauthbearer_extensions": "extensions",
}

S = TypeVar("S", bound=ConnectionSettings)


def admin_settings(bootstrap_servers: Bootstrap, **keywords: "Unpack[ConnectionKeywords]") -> AdminSettings:
    return settings_of(AdminSettings, bootstrap_servers, dict(keywords))


def producer_settings(bootstrap_servers: Bootstrap, **keywords: "Unpack[ProducerKeywords]") -> ProducerSettings:
    return settings_of(ProducerSettings, bootstrap_servers, dict(keywords))


def consumer_settings(bootstrap_servers: Bootstrap, **keywords: "Unpack[ConsumerKeywords]") -> ConsumerSettings:
    return settings_of(ConsumerSettings, bootstrap_servers, dict(keywords))


def keywords_of(cls: type[ConnectionSettings]) -> set[str]:
    """All keywords of these settings, without bootstrap_servers."""
    return {one.name for one in fields(cls)} - {"bootstrap_servers", "security"} | set(SECURITY_KEYWORDS)


def settings_of(cls: type[S], bootstrap_servers: Bootstrap, keywords: dict[str, Any]) -> S:
    """Raises TypeError for an unknown keyword, with the most similar name; InvalidConfigurationError."""
    known = keywords_of(cls)
    for name in keywords:
        if name not in known:
            raise TypeError(f"there is no setting {name!r}{nearest(name, known)}")
    if keywords.get("group_protocol") == CONSUMER:
        _check_chosen(keywords)
    security = {SECURITY_KEYWORDS[name]: keywords.pop(name) for name in list(keywords) if name in SECURITY_KEYWORDS}
    return cls(addresses_of(bootstrap_servers), security=Security(**security), **keywords)


def _check_chosen(keywords: Iterable[str]) -> None:
    """Raises InvalidConfigurationError, as Java's client does, for what the broker decides in the newer protocol."""
    for name in keywords:
        if name in SET_BY_THE_BROKER:
            instead = f"group.consumer.{name.replace('_', '.')}" if name.endswith("_ms") else "group_remote_assignor"
            raise InvalidConfigurationError(
                f'{name} has no effect with group_protocol="consumer"', hint=f"leave it out: {instead} takes its place"
            )


def nearest(name: str, known: Iterable[str]) -> str:
    """A suggestion to append to the error for an unknown name; "" if no name is similar."""
    if f"sasl_plain_{name.removeprefix('sasl_')}" in known:  # the name in other clients
        return f"; did you mean {'sasl_plain_' + name.removeprefix('sasl_')!r}?"
    found = difflib.get_close_matches(name, sorted(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


# ---- checks --------------------------------------------------------------------------------------------------------


def _set(settings: ConnectionSettings, name: str, value: object) -> None:
    object.__setattr__(settings, name, value)


def _is_sendable(value: object) -> bool:
    """Whether it can be a string of the protocol."""
    return isinstance(value, str) and len(value.encode("utf-8", "replace")) <= 32_767 and _is_unicode(value)


def _is_unicode(text: str) -> bool:
    """Whether it has no lone surrogates, which cannot be encoded."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _check_sendable(settings: ConnectionSettings, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not _is_sendable(value):
            raise InvalidConfigurationError(f"{name}={value!r:.60} must be a str of at most 32,767 bytes")


def _check_positive(settings: ConnectionSettings, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= INT32_MAX:
            raise InvalidConfigurationError(f"{name}={value!r} must be an int greater than 0")


def _check_not_negative(settings: ConnectionSettings, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= INT32_MAX:
            raise InvalidConfigurationError(f"{name}={value!r} must be a number of 0 or more")


def _check_true_or_false(settings: ConnectionSettings) -> None:
    """Check that booleans are True or False: neither None nor the text "false" is accepted."""
    for each in fields(settings):
        if isinstance(each.default, bool) and not isinstance(value := getattr(settings, each.name), bool):
            raise InvalidConfigurationError(f"{each.name}={value!r} must be True or False")


def _check_one_of(settings: ConnectionSettings, name: str, choices: tuple[object, ...]) -> None:
    value = getattr(settings, name)
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise InvalidConfigurationError(f"{name}={value!r} is not valid", hint=f"use one of {listed}")


def _check_callable(settings: ConnectionSettings, names: Iterable[str]) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None and not callable(value):
            raise InvalidConfigurationError(f"{name}={value!r:.60} is not callable", hint="pass a function")


def _check_serializers(settings: ConnectionSettings, method: str) -> None:
    for name in (f"key_{method}r", f"value_{method}r"):
        value = getattr(settings, name)
        try:
            if value is not None:
                way_of(value, method)
        except InvalidConfigurationError as error:
            raise InvalidConfigurationError(f"{name}: {error}", hint=error.hint) from None


def _check_level(settings: ProducerSettings) -> None:
    level, codec = settings.compression_level, settings.compression_type
    if level is None:
        return
    if codec not in LEVELS:
        raise InvalidConfigurationError(
            f"compression_level={level!r}: compression_type={codec!r} has no levels",
            hint=f"leave it out, or set compression_type to one of {', '.join(map(repr, LEVELS))}",
        )
    least, most = LEVELS[codec]
    if not isinstance(level, int) or isinstance(level, bool) or not least <= level <= most:
        raise InvalidConfigurationError(
            f"compression_level={level!r} is not a level of {codec}", hint=f"use an int from {least} to {most}"
        )
