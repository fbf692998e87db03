"""Makes our broker look like one of an older Kafka release: it lists only the APIs and versions of that release, and
closes the connection at others.

RELEASES: for each release, the newest version of each API that a client meets. Sources: the releases' message
definitions (clients/src/main/resources/common/message), as kafka-python 3 lists them.
"""

from collections.abc import Callable
from typing import Any

from fencepost.broker.broker import Broker
from fencepost.broker.net.connection import Connection
from fencepost.broker.requests.dispatch import HANDLERS
from fencepost.protocol.apis import APIS, encode_response
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import read_request_header
from fencepost.protocol.messages.cluster import ApiVersionsResponse

_ORDER = ("2.1", "2.3", "2.5", "2.8", "3.0", "3.5", "4.0", "4.3")
_NEWEST: dict[str, tuple[int | None, ...]] = {
    "Produce": (7, 7, 8, 9, 9, 9, 12, 13),
    "Fetch": (10, 11, 11, 12, 12, 15, 17, 18),
    "ListOffsets": (4, 5, 5, 6, 7, 8, 10, 11),
    "Metadata": (7, 8, 9, 11, 11, 12, 13, 13),
    "OffsetCommit": (6, 7, 8, 8, 8, 8, 9, 10),
    "OffsetFetch": (5, 5, 7, 7, 8, 8, 9, 10),
    "FindCoordinator": (2, 2, 3, 3, 4, 4, 6, 6),
    "JoinGroup": (3, 5, 7, 7, 7, 9, 9, 9),
    "Heartbeat": (2, 3, 4, 4, 4, 4, 4, 4),
    "LeaveGroup": (2, 2, 4, 4, 4, 5, 5, 5),
    "SyncGroup": (2, 3, 5, 5, 5, 5, 5, 5),
    "DescribeGroups": (2, 3, 5, 5, 5, 5, 6, 6),
    "ListGroups": (2, 2, 3, 4, 4, 4, 5, 5),
    "ApiVersions": (2, 2, 3, 3, 3, 3, 4, 4),
    "CreateTopics": (3, 3, 5, 7, 7, 7, 7, 7),
    "DeleteTopics": (3, 3, 4, 6, 6, 6, 6, 6),
    "DeleteRecords": (1, 1, 1, 2, 2, 2, 2, 2),
    "InitProducerId": (1, 1, 3, 4, 4, 4, 5, 5),
    "OffsetForLeaderEpoch": (2, 3, 3, 4, 4, 4, 4, 4),
    "AddPartitionsToTxn": (1, 1, 1, 3, 3, 3, 5, 5),
    "AddOffsetsToTxn": (1, 1, 1, 3, 3, 3, 4, 4),
    "EndTxn": (1, 1, 1, 3, 3, 3, 5, 5),
    "WriteTxnMarkers": (0, 0, 0, 1, 1, 1, 1, 2),
    "TxnOffsetCommit": (2, 2, 3, 3, 3, 3, 5, 5),
    "DescribeConfigs": (2, 2, 2, 4, 4, 4, 4, 4),
    "AlterConfigs": (1, 1, 1, 2, 2, 2, 2, 2),
    "DescribeLogDirs": (1, 1, 1, 2, 2, 4, 4, 5),
    "CreatePartitions": (1, 1, 2, 3, 3, 3, 3, 3),
    "DeleteGroups": (1, 1, 2, 2, 2, 2, 2, 2),
    "IncrementalAlterConfigs": (None, 0, 1, 1, 1, 1, 1, 1),
    "OffsetDelete": (None, None, 0, 0, 0, 0, 0, 0),
    "DescribeCluster": (None, None, None, 0, 0, 0, 2, 2),
    "DescribeProducers": (None, None, None, 0, 0, 0, 0, 0),
    "DescribeTransactions": (None, None, None, None, 0, 0, 0, 0),
    "ListTransactions": (None, None, None, None, 0, 0, 1, 2),
    "DescribeTopicPartitions": (None, None, None, None, None, None, 0, 0),
}
RELEASES: dict[str, dict[str, int]] = {
    release: {name: newest for name, row in _NEWEST.items() if (newest := row[column]) is not None}
    for column, release in enumerate(_ORDER)
}
TV2_SINCE = "4.0"
NAMES_ITSELF_SINCE = "2.4"  # when ApiVersions is asked in a version that it does not know (KIP-511)

Serve = Callable[[Connection, Any], None]


def cap(broker: Broker, release: str) -> None:
    """Let this running broker behave as one of that release from now on."""
    broker.intercept(lambda serve: capped(serve, release))


def capped(serve: Serve, release: str) -> Serve:
    """Return a function that serves a request only if the release knew it, and else closes the connection."""
    newest = {api.key: RELEASES[release][api.name] for api in APIS.values() if api.name in RELEASES[release]}
    newest = {key: min(version, APIS[key].max) for key, version in newest.items() if key in HANDLERS}

    def serve_capped(connection: Connection, frame: Any) -> None:
        header = read_request_header(frame)
        known = header.api_version <= newest.get(header.api_key, -1)
        if header.api_key == 18:
            version = header.api_version if known else 0
            response = _table(newest, release) if known else _refusal(newest, release)
            connection.reply(encode_response(APIS[18], version, header.correlation_id, response), 0)
        elif known:
            serve(connection, frame)
        else:
            connection.fail(f"Kafka {release} has no API {header.api_key} v{header.api_version}")

    return serve_capped


def _table(newest: dict[int, int], release: str) -> ApiVersionsResponse:
    finalized = []
    if release >= TV2_SINCE:
        feature = ApiVersionsResponse.FinalizedFeature(
            name="transaction.version", max_version_level=2, min_version_level=2
        )
        finalized.append(feature)
    return ApiVersionsResponse(
        api_keys=[_line(key, version) for key, version in sorted(newest.items())],
        finalized_features_epoch=0,
        finalized_features=finalized,
    )


def _refusal(newest: dict[int, int], release: str) -> ApiVersionsResponse:
    lines = [_line(18, newest[18])] if release >= NAMES_ITSELF_SINCE else []
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=lines)


def _line(key: int, version: int) -> ApiVersionsResponse.ApiKey:
    return ApiVersionsResponse.ApiKey(api_key=key, min_version=APIS[key].advertised_min, max_version=version)
