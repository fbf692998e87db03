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
from .serialization import HasDeserialize, HasSerialize
from .setting_checks import (
    INT32_MAX,
    check_callable,
    check_name,
    check_not_negative,
    check_one_of,
    check_positive,
    check_sendable,
    check_serializers,
    check_true_or_false,
    is_sendable,
    put,
)

if TYPE_CHECKING:
    import ssl
    from typing import Unpack

Acks = Literal["all", -1, 0, 1]
Codec = Literal["gzip", "snappy", "lz4", "zstd"]
IsolationLevel = Literal["read_committed", "read_uncommitted"]
OffsetReset = Literal["earliest", "latest", "none"]
Acknowledgement = Literal["explicit", "implicit"]
Assignor = Literal["range", "roundrobin", "sticky", "cooperative-sticky"]
GroupProtocol = Literal["classic", "consumer"]
Serializer = Callable[[Any], bytes | None] | Callable[[Any, Any], bytes | None] | HasSerialize
Deserializer = Callable[[bytes], Any] | Callable[[bytes, Any], Any] | HasDeserialize

MAX_IN_FLIGHT = 5  # a broker remembers the last five batches of a producer in a partition
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
        put(self, "bootstrap_servers", addresses_of(self.bootstrap_servers))
        check_positive(self, ("request_timeout_ms", "connect_timeout_ms", "retry_backoff_ms"))
        check_positive(self, ("retry_backoff_max_ms", "metadata_max_age_ms", "default_api_timeout_ms"))
        check_positive(
            self, ("connections_max_idle_ms", *(["start_timeout_ms"] if self.start_timeout_ms is not None else []))
        )
        check_true_or_false(self)
        if not is_sendable(self.client_id):
            raise InvalidConfigurationError("client_id must be a str of at most 32,767 bytes")


@dataclass(frozen=True, slots=True)
class ProducerSettings(ConnectionSettings):
    """acks: -1 (all), 0 or 1. Sizes are bytes."""

    transactional_id: str | None = None
    name: str | None = None  # of a producer whose sends carry a sequence of the application's
    enable_idempotence: bool = True
    acks: Acks | None = None  # None: all
    retries: int | None = None  # None: until delivery_timeout_ms
    max_in_flight: int = MAX_IN_FLIGHT
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
        check_name(self)
        acks = -1 if self.acks in (None, "all", "-1") else self.acks
        if acks not in (-1, 0, 1) or isinstance(acks, bool):
            raise InvalidConfigurationError(f"acks={self.acks!r} is not valid", hint='use "all", 1 or 0')
        put(self, "acks", acks)
        put(self, "retries", INT32_MAX if self.retries is None else self.retries)
        if str(self.compression_type) == "none":  # the name in other clients
            put(self, "compression_type", None)
        check_one_of(self, "compression_type", (None, *CODECS))
        _check_level(self)
        check_serializers(self, "serialize")
        if isinstance(self.partitioner, str):
            check_one_of(self, "partitioner", PARTITIONERS)
        else:
            check_callable(self, ("partitioner",))
        check_positive(self, ("max_in_flight", "max_batch_size", "buffer_memory", "max_request_size"))
        check_positive(self, ("delivery_timeout_ms", "transaction_timeout_ms"))
        check_not_negative(self, ("linger_ms", "max_block_ms", "retries"))

    @property
    def required_acks(self) -> int:
        """Return acks as the number that a request has."""
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
        put(self, "auto_offset_reset", self.auto_offset_reset or "none")
        strategies: object = self.partition_assignment_strategy
        if isinstance(strategies, str):
            put(self, "partition_assignment_strategy", (strategies,))
        put(self, "partition_assignment_strategy", tuple(self.partition_assignment_strategy))
        for strategy in self.partition_assignment_strategy:
            if isinstance(strategy, str) and strategy not in ASSIGNORS:  # an assignor object is used as it is
                raise InvalidConfigurationError(
                    f"partition_assignment_strategy {strategy!r} is not known",
                    hint=f"use any of {', '.join(ASSIGNORS)}",
                )
        check_one_of(self, "isolation_level", ("read_committed", "read_uncommitted"))
        check_one_of(self, "auto_offset_reset", ("earliest", "latest", "none"))
        check_positive(self, ("fetch_max_bytes", "max_partition_fetch_bytes", "max_poll_records"))
        if self.max_decompressed_bytes is not None:
            check_positive(self, ("max_decompressed_bytes",))
        check_positive(self, ("max_poll_interval_ms", "session_timeout_ms", "heartbeat_interval_ms"))
        check_positive(self, ("auto_commit_interval_ms",))
        check_not_negative(self, ("fetch_min_bytes", "fetch_max_wait_ms"))
        check_serializers(self, "deserialize")
        _check_group(self)

    @property
    def decompressed_limit(self) -> int:
        """Return the largest size of the records of one batch, decompressed."""
        return self.max_decompressed_bytes or max(LEAST_DECOMPRESSED_LIMIT, 2 * self.fetch_max_bytes)


@dataclass(frozen=True, slots=True)
class ShareConsumerSettings(ConnectionSettings):
    """auto_offset_reset: of the group, which is shared by its consumers. Sizes are bytes."""

    allow_auto_create_topics: bool = False
    group_id: str = ""
    auto_offset_reset: str | None = None  # None: as the group has it, by default latest
    acknowledgement: Acknowledgement = "explicit"
    max_poll_records: int = 500
    strict: bool = False
    client_rack: str = ""
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_decompressed_bytes: int | None = None  # of one batch; None: twice fetch_max_bytes, and at least 128 MiB
    max_poll_interval_ms: int = 300_000
    check_crcs: bool = True
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None

    def __post_init__(self) -> None:
        ConnectionSettings.__post_init__(self)
        if not self.group_id:
            raise InvalidConfigurationError("a share consumer needs a group_id", hint="set group_id")
        check_sendable(self, ("group_id", "client_rack", "auto_offset_reset"))
        check_one_of(self, "acknowledgement", ("explicit", "implicit"))
        check_positive(self, ("fetch_max_bytes", "max_poll_records", "max_poll_interval_ms"))
        if self.max_decompressed_bytes is not None:
            check_positive(self, ("max_decompressed_bytes",))
        check_not_negative(self, ("fetch_min_bytes", "fetch_max_wait_ms"))
        check_serializers(self, "deserialize")
        reset = self.auto_offset_reset
        if reset is not None and reset not in ("earliest", "latest") and not reset.startswith("by_duration:"):
            raise InvalidConfigurationError(
                f"auto_offset_reset={reset!r} is not valid", hint='use "earliest", "latest" or "by_duration:PT1H"'
            )

    @property
    def session_timeout_ms(self) -> int:
        """Return after how long without an answer the coordinator is looked up again: the broker's default."""
        return 45_000

    @property
    def heartbeat_interval_ms(self) -> int:
        """Return the interval between heartbeats, until an answer of the broker sets another."""
        return 5_000

    @property
    def decompressed_limit(self) -> int:
        """Return the largest size of the records of one batch, decompressed."""
        return self.max_decompressed_bytes or max(LEAST_DECOMPRESSED_LIMIT, 2 * self.fetch_max_bytes)


@dataclass(frozen=True, slots=True)
class AdminSettings(ConnectionSettings):
    """Only the settings of every client."""

    allow_auto_create_topics: bool = False


def _check_idempotence(settings: ProducerSettings) -> None:
    """Raise InvalidConfigurationError for settings that contradict idempotence (docs/requirements.md, S-48 to S-54)."""
    if settings.transactional_id is not None:
        if not settings.transactional_id:
            raise InvalidConfigurationError("transactional_id is empty")
        check_sendable(settings, ("transactional_id",))
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
    if settings.max_in_flight > MAX_IN_FLIGHT:
        raise InvalidConfigurationError(
            f"Must set max_in_flight to at most {MAX_IN_FLIGHT} to use the idempotent producer.",
            hint=f"a broker remembers the last {MAX_IN_FLIGHT} batches of a producer in a partition",
        )


def _check_group(settings: ConsumerSettings) -> None:
    """Raise InvalidConfigurationError for invalid or contradictory group settings; put group_protocol in lower case."""
    if settings.group_id == "":
        raise InvalidConfigurationError("group_id is empty", hint="leave it out to read without a group")
    if settings.group_instance_id == "":
        raise InvalidConfigurationError(
            "group_instance_id is empty: all members would be the same one", hint="leave it out for a dynamic member"
        )
    check_sendable(settings, ("group_id", "group_instance_id", "group_remote_assignor", "client_rack"))
    put(settings, "group_protocol", str(settings.group_protocol).lower())
    check_one_of(settings, "group_protocol", (CLASSIC, CONSUMER))
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
    name: str | None
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


class ShareConsumerKeywords(ConnectionKeywords, total=False):
    group_id: str
    auto_offset_reset: str | None
    acknowledgement: Acknowledgement
    max_poll_records: int
    strict: bool
    client_rack: str
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_decompressed_bytes: int | None
    max_poll_interval_ms: int
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


def share_consumer_settings(
    bootstrap_servers: Bootstrap, **keywords: "Unpack[ShareConsumerKeywords]"
) -> ShareConsumerSettings:
    return settings_of(ShareConsumerSettings, bootstrap_servers, dict(keywords))


def keywords_of(cls: type[ConnectionSettings]) -> set[str]:
    """Return all keywords of these settings, without bootstrap_servers."""
    return {one.name for one in fields(cls)} - {"bootstrap_servers", "security"} | set(SECURITY_KEYWORDS)


def settings_of(cls: type[S], bootstrap_servers: Bootstrap, keywords: dict[str, Any]) -> S:
    """Make settings of keywords. Raises TypeError for an unknown one, naming the nearest; InvalidConfigurationError."""
    known = keywords_of(cls)
    for name in keywords:
        if name not in known:
            raise TypeError(f"there is no setting {name!r}{nearest(name, known)}")
    if keywords.get("group_protocol") == CONSUMER:
        _check_chosen(keywords)
    security = {SECURITY_KEYWORDS[name]: keywords.pop(name) for name in list(keywords) if name in SECURITY_KEYWORDS}
    return cls(addresses_of(bootstrap_servers), security=Security(**security), **keywords)


def _check_chosen(keywords: Iterable[str]) -> None:
    """Raise InvalidConfigurationError, as Java's client does, for settings that the broker decides in KIP-848."""
    for name in keywords:
        if name in SET_BY_THE_BROKER:
            instead = f"group.consumer.{name.replace('_', '.')}" if name.endswith("_ms") else "group_remote_assignor"
            raise InvalidConfigurationError(
                f'{name} has no effect with group_protocol="consumer"', hint=f"leave it out: {instead} takes its place"
            )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a suggestion to append to the error for an unknown name; "" if no name is similar."""
    if f"sasl_plain_{name.removeprefix('sasl_')}" in known:  # the name in other clients
        return f"; did you mean {'sasl_plain_' + name.removeprefix('sasl_')!r}?"
    found = difflib.get_close_matches(name, sorted(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _check_level(settings: ProducerSettings) -> None:
    """Raise InvalidConfigurationError if compression_level is not a level of the chosen compression_type."""
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
