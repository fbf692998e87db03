"""fencepost: a message broker you install with pip, speaking the Apache Kafka wire protocol, and its Python client.

The rule: a name is imported when it is first used, so importing the package costs next to nothing.

In a checkout the other packages are beside this one and not in it (docs/decisions/0001). Python started there finds
this one first, whatever is installed; so the folder above is searched as well.
"""

import os.path
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import sync as sync
    from .broker.embedded.broker import Broker as Broker
    from .broker.embedded.broker import BrokerHaltedError as BrokerHaltedError
    from .client.admin.admin import Admin as Admin
    from .client.admin.security_values import AclBinding as AclBinding
    from .client.admin.security_values import AclFilter as AclFilter
    from .client.admin.security_values import ScramCredentialInfo as ScramCredentialInfo
    from .client.admin.security_values import ScramDeletion as ScramDeletion
    from .client.admin.security_values import ScramUpsertion as ScramUpsertion
    from .client.admin.values import NewTopic as NewTopic
    from .client.admin.values import QuotaEntity as QuotaEntity
    from .client.consumer.batches import Batch as Batch
    from .client.consumer.consumer import Consumer as Consumer
    from .client.errors import AbortableTransactionError as AbortableTransactionError
    from .client.errors import AlreadyCommittedError as AlreadyCommittedError
    from .client.errors import ApplicationRecoverableError as ApplicationRecoverableError
    from .client.errors import AuthenticationError as AuthenticationError
    from .client.errors import AuthorizationError as AuthorizationError
    from .client.errors import BrokerUnreachableError as BrokerUnreachableError
    from .client.errors import BufferFullError as BufferFullError
    from .client.errors import ClosedError as ClosedError
    from .client.errors import CommitFailedError as CommitFailedError
    from .client.errors import CommitOutcomeUnknownError as CommitOutcomeUnknownError
    from .client.errors import CorruptRecordError as CorruptRecordError
    from .client.errors import DeliveryTimeoutError as DeliveryTimeoutError
    from .client.errors import ErrorCode as ErrorCode
    from .client.errors import FatalError as FatalError
    from .client.errors import FencedInstanceIdError as FencedInstanceIdError
    from .client.errors import ForkedError as ForkedError
    from .client.errors import IllegalStateError as IllegalStateError
    from .client.errors import InboxFencedError as InboxFencedError
    from .client.errors import InvalidConfigurationError as InvalidConfigurationError
    from .client.errors import KafkaError as KafkaError
    from .client.errors import NoOffsetError as NoOffsetError
    from .client.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from .client.errors import OutboxRowError as OutboxRowError
    from .client.errors import OutcomeDivergedError as OutcomeDivergedError
    from .client.errors import PoolBusyError as PoolBusyError
    from .client.errors import ProducerFencedError as ProducerFencedError
    from .client.errors import RebalanceInProgressError as RebalanceInProgressError
    from .client.errors import RecordDeserializationError as RecordDeserializationError
    from .client.errors import RecordNotHeldError as RecordNotHeldError
    from .client.errors import RecordTooLargeError as RecordTooLargeError
    from .client.errors import RequestTimedOutError as RequestTimedOutError
    from .client.errors import RetriableError as RetriableError
    from .client.errors import UnknownTopicError as UnknownTopicError
    from .client.errors import UnsupportedVersionError as UnsupportedVersionError
    from .client.metrics.counters import ClientMetrics as ClientMetrics
    from .client.producer.delivery import Delivery as Delivery
    from .client.producer.pool import ProducerPool as ProducerPool
    from .client.producer.producer import Producer as Producer
    from .client.producer.transaction import Transaction as Transaction
    from .client.serialization import MessageField as MessageField
    from .client.serialization import SerializationContext as SerializationContext
    from .client.share.consumer import ShareConsumer as ShareConsumer
    from .client.snapshots import AdminSnapshot as AdminSnapshot
    from .client.snapshots import ClientMetricsSnapshot as ClientMetricsSnapshot
    from .client.snapshots import ConnectionSnapshot as ConnectionSnapshot
    from .client.snapshots import ConsumerSnapshot as ConsumerSnapshot
    from .client.snapshots import PartitionSnapshot as PartitionSnapshot
    from .client.snapshots import PoolSnapshot as PoolSnapshot
    from .client.snapshots import ProducerSnapshot as ProducerSnapshot
    from .client.snapshots import ShareConsumerSnapshot as ShareConsumerSnapshot
    from .client.snapshots import SharePartitionSnapshot as SharePartitionSnapshot
    from .client.tracing.tracing import Tracing as Tracing
    from .client.values import AcknowledgeType as AcknowledgeType
    from .client.values import ConsumerGroupMetadata as ConsumerGroupMetadata
    from .client.values import OffsetAndMetadata as OffsetAndMetadata
    from .client.values import OffsetAndTimestamp as OffsetAndTimestamp
    from .client.values import ProducerIdentity as ProducerIdentity
    from .client.values import Record as Record
    from .client.values import RecordMetadata as RecordMetadata
    from .client.values import ShareRecord as ShareRecord
    from .client.values import TopicPartition as TopicPartition

__version__ = "0.1.0"

_ABOVE = os.path.dirname(__path__[0])
if not os.path.isdir(os.path.join(__path__[0], "client")) and os.path.isfile(os.path.join(_ABOVE, "client/errors.py")):
    __path__.append(_ABOVE)

_MODULES = {
    "broker.embedded.broker": "Broker BrokerHaltedError",
    "client.admin.admin": "Admin",
    "client.admin.security_values": "AclBinding AclFilter ScramCredentialInfo ScramDeletion ScramUpsertion",
    "client.admin.values": "NewTopic QuotaEntity",
    "client.consumer.batches": "Batch",
    "client.consumer.consumer": "Consumer",
    "client.producer.delivery": "Delivery",
    "client.errors": (
        "AbortableTransactionError AlreadyCommittedError ApplicationRecoverableError AuthenticationError "
        "AuthorizationError "
        "BrokerUnreachableError BufferFullError ClosedError CommitFailedError CommitOutcomeUnknownError "
        "CorruptRecordError DeliveryTimeoutError ErrorCode FatalError FencedInstanceIdError ForkedError "
        "IllegalStateError InboxFencedError InvalidConfigurationError KafkaError NoOffsetError OffsetOutOfRangeError "
        "OutboxRowError OutcomeDivergedError "
        "PoolBusyError ProducerFencedError RebalanceInProgressError RecordDeserializationError RecordNotHeldError "
        "RecordTooLargeError RequestTimedOutError RetriableError UnknownTopicError UnsupportedVersionError"
    ),
    "client.metrics.counters": "ClientMetrics",
    "client.producer.producer": "Producer",
    "client.producer.pool": "ProducerPool",
    "client.serialization": "MessageField SerializationContext",
    "client.share.consumer": "ShareConsumer",
    "client.snapshots": (
        "AdminSnapshot ClientMetricsSnapshot ConnectionSnapshot ConsumerSnapshot PartitionSnapshot "
        "PoolSnapshot ProducerSnapshot ShareConsumerSnapshot SharePartitionSnapshot"
    ),
    "client.producer.transaction": "Transaction",
    "client.tracing.tracing": "Tracing",
    "client.values": (
        "AcknowledgeType ConsumerGroupMetadata OffsetAndMetadata OffsetAndTimestamp ProducerIdentity Record "
        "RecordMetadata ShareRecord TopicPartition"
    ),
}
_FROM = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = ["__version__", "sync", *sorted(_FROM)]


def __getattr__(name: str) -> object:
    if name == "sync":
        return import_module(".sync", __name__)
    module = _FROM.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
