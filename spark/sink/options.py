"""The options of the sink: their names and meanings, and which can be combined. Pure.

The rule: names and meanings are those of Spark's Kafka sink where it has them. An option that would weaken the
requested guarantee is refused, with a hint. Source: Spark's KafkaWriter; docs "Structured Streaming + Kafka".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from ...client.config_names import settings_from
from ...client.errors import InvalidConfigurationError
from ...client.settings import AdminSettings, ProducerSettings
from ..options import connection_of, duration_ms, read_names, whole
from .protocol import MAX_SINK_ID_CHARS, WrongUseError

SINK_NAMES = ("topic", "deliveryGuarantee", "sinkId", "batchId", "preparedTimeout", "includeHeaders")
"""includeHeaders is for the source: a sink writes the column if it exists, as Spark's Kafka sink does."""

SPARKS_OWN = ("checkpointLocation", "queryName", "path", "asyncProgressTrackingEnabled")
"""Spark's own options, which it passes on."""

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"

_SINK_ID = re.compile(rf"[A-Za-z0-9_.:/-]{{1,{MAX_SINK_ID_CHARS}}}")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of the sink. prepared_timeout_ms: how long a prepared transaction waits for its decision.
    checkpoint: the query's checkpoint, if the option names it.

    None means, for topic: a column of the rows has it; for guarantee: the best one that the broker supports; for
    sink_id: the query's id; for batch_id: it is not a write of a foreachBatch.
    """

    connection: AdminSettings
    produce: ProducerSettings
    topic: str | None = None
    guarantee: str | None = None
    sink_id: str | None = None
    batch_id: int | None = None
    prepared_timeout_ms: int = 3_600_000
    checkpoint: str | None = None
    query_name: str | None = None


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Parse the options of the sink. streaming: of a streaming query, or else of a df.write. Raises
    InvalidConfigurationError.
    """
    own, kafka = read_names(given, SINK_NAMES, SPARKS_OWN)
    spark = {name.lower(): value for name, value in given.items()}
    guarantee = own.get("deliveryGuarantee")
    if guarantee is not None:
        guarantee = guarantee.strip().lower()
        if guarantee not in (EXACTLY_ONCE, AT_LEAST_ONCE):
            raise InvalidConfigurationError(
                f"option 'deliveryGuarantee' must be {EXACTLY_ONCE} or {AT_LEAST_ONCE}, not {guarantee!r}"
            )
    for name in ("transactional.id", "transaction.timeout.ms"):
        if name in kafka:
            raise InvalidConfigurationError(
                f"option 'kafka.{name}' cannot be set: the sink chooses it", hint="leave it out; sinkId names the sink"
            )
    sink_id, batch_id = _identity(own, streaming)
    if spark.get("asyncprogresstrackingenabled", "false").lower() == "true" and guarantee != AT_LEAST_ONCE:
        raise WrongUseError(
            "with asyncProgressTrackingEnabled a batch cannot be written exactly once: a retry may have other rows",
            hint="leave it out, or set deliveryGuarantee to at_least_once",
        )
    produce = settings_from(ProducerSettings, kafka)
    timeout = own.get("preparedTimeout", "1h").strip()
    return SinkOptions(
        connection=connection_of(produce),
        produce=produce,
        topic=own.get("topic") or None,
        guarantee=guarantee,
        sink_id=sink_id,
        batch_id=batch_id,
        prepared_timeout_ms=-1 if timeout == "-1" else min(2**31 - 1, duration_ms("preparedTimeout", timeout)),
        checkpoint=spark.get("checkpointlocation") or None,
        query_name=spark.get("queryname") or None,
    )


def _identity(own: Mapping[str, str], streaming: bool) -> tuple[str | None, int | None]:
    """Parse the options sinkId and batchId; None: not set. Raises InvalidConfigurationError for values or a
    combination that are not allowed.
    """
    sink_id = own.get("sinkId")
    if sink_id is not None and not _SINK_ID.fullmatch(sink_id):
        raise InvalidConfigurationError(
            f"option 'sinkId' must be 1 to {MAX_SINK_ID_CHARS} letters, digits and _.:/-, not {sink_id!r}"
        )
    batch_id = whole("batchId", own["batchId"], 0) if "batchId" in own else None
    if streaming and batch_id is not None:
        raise InvalidConfigurationError("option 'batchId' is for foreachBatch: Spark numbers the batches of a stream")
    if not streaming and (sink_id is None) is not (batch_id is None):
        raise InvalidConfigurationError(
            "a batch write needs both options 'sinkId' and 'batchId', or neither",
            hint="in foreachBatch set batchId to the batch's number, and a different sinkId for each write",
        )
    return sink_id, batch_id


# ---- what identifies a batch ---------------------------------------------------------------------------------------


def stream_mark(options: SinkOptions) -> str:
    """Return a prefix that all attempts of one query's output have. Another process with the same options computes the
    same one, so it can find and abort them.

    16 hexadecimal digits; "" if no option distinguishes this query from others.
    """
    if options.checkpoint is None and options.query_name is None:
        return ""
    known = repr((options.checkpoint, options.query_name, options.topic))
    return sha256(known.encode()).hexdigest()[:16]


def digest_of(topic: str | None, offsets: str | None) -> bytes:
    """Return the digest by which a repeated decision is recognised. topic: None if a column of the rows has it.

    offsets: the text of the micro-batch's offsets file in the checkpoint; None if it cannot be read. Only the planned
    offsets in it are used, not the version, time and settings before them.
    """
    found = sha256(b"*" if topic is None else b"=" + topic.encode()).digest()
    if offsets is not None:
        planned = "\n".join(line.strip() for line in offsets.strip().splitlines()[2:])
        found += sha256(planned.encode()).digest()
    return found
