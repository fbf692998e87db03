"""The APIs of our own for named producers: who writes under a name, and how far it has got in each partition.

A record of a named producer has a sequence that its application chose; the broker keeps the highest one of each name
and partition, and what is at or below it is not written again. Byte by byte in docs/apis.md.
"""

from ..primitives import ZERO_UUID
from ..schema import Int16, Int32, Int64, String, Uuid, field, request, response, struct

ANEW = -1


@request(api=20008, versions="0", flexible="0+", since=3)
class OpenNamedProducerRequest:
    """Take the name, or, with the epoch that taking it gave, write to more topics."""

    @struct
    class Topic:
        name: String
        partition_count: Int32  # as the client knows it: keys are hashed by it

    name: String
    epoch: Int64 = ANEW
    topics: list[Topic] = field(factory=list)


@response(to=OpenNamedProducerRequest)
class OpenNamedProducerResponse:
    """The epoch of the name, and its highest sequence in each partition: -1 where nothing was written under it."""

    @struct
    class Topic:
        @struct
        class Partition:
            index: Int32
            highest: Int64

        name: String
        topic_id: Uuid = ZERO_UUID
        error_code: Int16 = 0
        error_message: String | None = None
        partitions: list[Partition] = field(factory=list)  # those of which there is one

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    epoch: Int64 = -1
    topics: list[Topic] = field(factory=list)


@request(api=20009, versions="0", flexible="0+", since=3)
class DescribeNamedProducersRequest:
    """Ask who writes under these names. names: None for all that may be seen."""

    names: list[String] | None = None


@response(to=DescribeNamedProducersRequest)
class DescribeNamedProducersResponse:
    """Who has opened each name last, and how far it has got."""

    @struct
    class Producer:
        @struct
        class Partition:
            topic: String
            index: Int32
            highest: Int64

        name: String
        error_code: Int16 = 0
        epoch: Int64 = -1
        owner: String = ""
        partitions: list[Partition] = field(factory=list)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    producers: list[Producer] = field(factory=list)


@request(api=20010, versions="0", flexible="0+", since=3)
class RemoveNamedProducersRequest:
    """Forget these names, and what was written under them."""

    names: list[String]


@response(to=RemoveNamedProducersRequest)
class RemoveNamedProducersResponse:
    """One result for each name."""

    @struct
    class Producer:
        name: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    producers: list[Producer] = field(factory=list)
