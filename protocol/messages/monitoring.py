"""The read-only APIs of our own: who is connected, whose a transaction is, and what the broker counts.

Kafka has no such thing. They are found by the feature fencepost.version; byte by byte in docs/apis.md.
"""

from ..schema import Boolean, Float64, Int8, Int16, Int32, Int64, String, field, request, response, struct

GAUGE, COUNTER, HISTOGRAM = 0, 1, 2


@request(api=20004, versions="0", flexible="0+", since=2)
class DescribeClientsRequest:
    """Ask which clients are connected."""


@response(to=DescribeClientsRequest)
class DescribeClientsResponse:
    """The clients; connections with the same names are one entry. left_out: how many entries did not fit."""

    @struct
    class Client:
        client_id: String | None = None
        software: String = ""  # name and version, as the client gave them
        host: String = ""
        listener: String = ""
        principal: String = ""
        connections: Int32 = 0
        bytes_in: Int64 = 0
        bytes_out: Int64 = 0
        requests: Int64 = 0
        idle_ms: Int64 = 0  # since anything came or left

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    left_out: Int32 = 0
    clients: list[Client] = field(factory=list)


@request(api=20005, versions="0", flexible="0+", since=2)
class DescribeTransactionOwnersRequest:
    """Ask which clients own these transactional ids; null: all ids with an open transaction."""

    transactional_ids: list[String] | None = None


@response(to=DescribeTransactionOwnersRequest)
class DescribeTransactionOwnersResponse:
    """The client that sent the last InitProducerId of an id, or the first request after the broker's start."""

    @struct
    class Owner:
        transactional_id: String
        error_code: Int16 = 0
        client_id: String | None = None
        software: String = ""
        host: String = ""
        listener: String = ""
        principal: String = ""
        connected: Boolean = False  # whether that connection is still there

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    left_out: Int32 = 0
    owners: list[Owner] = field(factory=list)


@request(api=20006, versions="0", flexible="0+", since=2)
class DescribeMetricsRequest:
    """Ask for the broker's metrics."""


@response(to=DescribeMetricsRequest)
class DescribeMetricsResponse:
    """The metrics, as families of samples like Prometheus's. kind: 0 gauge, 1 counter, 2 histogram."""

    @struct
    class Family:
        @struct
        class Sample:
            """value: for a histogram the sum. buckets: for a histogram, each with its count of values up to `bound`."""

            @struct
            class Bucket:
                bound: Float64  # infinite: the last
                count: Int64

            labels: list[String] = field(factory=list)  # the values, in the order of label_names
            value: Float64 = 0.0
            buckets: list[Bucket] = field(factory=list)

        name: String
        help: String
        kind: Int8
        label_names: list[String] = field(factory=list)
        samples: list[Sample] = field(factory=list)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    families: list[Family] = field(factory=list)
