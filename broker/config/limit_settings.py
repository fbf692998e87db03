"""Limits on what clients may use: connections, memory for requests and answers, files, topics and configs."""

from dataclasses import dataclass

from .options import ConfigType, option

INT = ConfigType.INT
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LimitSettings:
    """Limits that apply to every kind of client; users, groups and transactions have tables of their own."""

    socket_request_max_bytes: int = option(100 * MIB, "The largest request.", type=INT, at_least=1)
    socket_send_buffer_bytes: int = option(
        256 * 1024,
        "What a connection's socket holds of an answer that its client has not taken (Kafka: 102400). More lets one "
        "far away read faster. -1: as the system has it.",
        type=INT,
        at_least=-1,
    )
    queued_max_request_bytes: int = option(
        256 * MIB,
        "Memory for what has come of requests of 16 KiB and more, over all connections; others wait. -1: no limit.",
        at_least=-1,
    )
    max_connections: int = option(
        10_000, "Connections at one time.", type=INT, at_least=0, dynamic=True, dynamic_at_least=10
    )
    max_connections_per_ip: int = option(
        2**31 - 1,
        "Connections from one address at one time.",
        type=INT,
        at_least=0,
        dynamic=True,
        dynamic_at_least=10,
    )
    connections_max_idle_ms: int = option(600_000, "A connection silent for so long is closed. -1: never.", at_least=-1)
    max_incremental_fetch_session_cache_slots: int = option(1_000, "Fetch sessions kept.", type=INT, at_least=0)
    min_incremental_fetch_session_eviction_ms: int = option(
        120_000, "A fetch session used within this time is not evicted.", at_least=0
    )
    fetch_max_bytes: int = option(
        55 * MIB,
        "The most bytes one fetch returns; 8 MiB, unless its min_bytes asks for more.",
        type=INT,
        at_least=1024,
    )
    max_request_partition_size_limit: int = option(
        2_000, "Partitions that one answer of DescribeTopicPartitions describes.", type=INT, at_least=1
    )
    max_open_files: int = option(
        1_024,
        "Segment and index files held open at one time, within the limit of the process. `serve` takes up to 8192.",
        type=INT,
        at_least=64,
    )
    max_partitions: int = option(
        50_000,
        "Partitions of all topics together, those of the broker's own topics not counted; above it none are made. One "
        "takes some 5 KB of memory.",
        type=INT,
        at_least=0,
        dynamic=True,
    )
    configs_max_bytes: int = option(
        64 * MIB,
        "Names and values of all settings that topics and brokers were given, those of the broker's own topics not "
        "counted; above it none is added. One value may have 32767 bytes, those of one topic or broker 262144.",
        at_least=0,
    )
