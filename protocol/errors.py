"""The error codes of the protocol, and the two exceptions with which a request can fail.

The rule: any layer raises `KafkaError` with a code, and dispatch turns it into the response's error field; bytes that
do not parse raise `MalformedFrame`, which closes the connection. Codes, names and which of them a client may retry:
Apache Kafka 4.3, class Errors.
"""

from enum import IntEnum
from typing import TYPE_CHECKING

_LONGEST_TEXT = 2000  # characters; a detail may quote what a client sent, and a string on the wire ends at 32,767 bytes


class ErrorCode(IntEnum):
    """An error code of the protocol: its number, whether a client may retry, and its text."""

    if TYPE_CHECKING:
        retriable: bool
        text: str

    def __new__(cls, number: int, retriable: bool, text: str) -> "ErrorCode":
        code = int.__new__(cls, number)
        code._value_ = number
        code.retriable = retriable
        code.text = text
        return code

    UNKNOWN_SERVER_ERROR = -1, False, "The broker failed in a way it did not expect."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is below the start of the log or above its end."
    CORRUPT_MESSAGE = 2, True, "A checksum, a length or a key of the records is wrong."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "There is no such topic or partition here."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not serve that partition."
    REQUEST_TIMED_OUT = 7, True, "The request was not done in time."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available."
    MESSAGE_TOO_LARGE = 10, False, "The batch is larger than the topic accepts."
    STALE_CONTROLLER_EPOCH = 11, False, "Another controller has taken over."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The text stored with the offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection ended before the answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still reading its state."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "Another broker is the coordinator of this key."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name is not valid, or may not be used for this."
    RECORD_LIST_TOO_LARGE = 18, False, "The records are larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Fewer replicas are in sync than the topic asks for."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "The records were written to fewer replicas than the topic asks for."
    INVALID_REQUIRED_ACKS = 21, False, "acks must be -1, 0 or 1."
    ILLEGAL_GENERATION = 22, False, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member shares no protocol with the rest of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is outside the broker's limits."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not allowed on this topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not allowed on this group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not allowed on the cluster."
    INVALID_TIMESTAMP = 32, False, "A timestamp is outside what the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The broker does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, False, "This request may not come at this point of authentication."
    UNSUPPORTED_VERSION = 35, False, "The broker does not speak this version of the API."
    TOPIC_ALREADY_EXISTS = 36, False, "A topic of this name exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The assignment of replicas is not valid."
    INVALID_CONFIG = 40, False, "A setting has a value that is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself or asks for what cannot be."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The format of the records does not allow this."
    POLICY_VIOLATION = 44, False, "A policy of the broker forbids this."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "The batch does not follow the producer's last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The batch was appended before."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer's epoch is an old one."
    INVALID_TXN_STATE = 48, False, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is above the broker's limit, or not positive."
    CONCURRENT_TRANSACTIONS = 51, True, "The previous transaction of this id is still being ended."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The marker comes from a coordinator that has been replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not allowed to use this transactional id."
    SECURITY_DISABLED = 54, False, "No authorizer is configured."
    OPERATION_NOT_ATTEMPTED = 55, False, "Not tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, "The partition's files could not be read or written."
    LOG_DIR_NOT_FOUND = 57, False, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, False, "The credentials are not right."
    UNKNOWN_PRODUCER_ID = 59, False, "The broker no longer knows anything of this producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to someone else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "This connection may not handle delegation tokens."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not allowed on this delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "Principals of this type are not known."
    NON_EMPTY_GROUP = 68, False, "The group has members, or open transactions have acknowledged records of it."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session expects another epoch."
    LISTENER_NOT_FOUND = 72, True, "The leader has no listener like the one that was asked."
    TOPIC_DELETION_DISABLED = 73, False, "Topics may not be deleted here."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "This version of the API does not know the codec of the records."
    STALE_BROKER_EPOCH = 77, False, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know its high watermark yet."
    MEMBER_ID_REQUIRED = 79, False, "Join again with the member id of this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group is full."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No replica may become the leader at the moment."
    ELECTION_NOT_NEEDED = 84, True, "The partition has the leader it should have."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is reading this topic now."
    INVALID_RECORD = 87, False, "A record breaks a rule of the topic or of the format."
    UNSTABLE_OFFSET_COMMIT = 88, True, "An open transaction still holds offsets of this partition."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up."
    PRODUCER_FENCED = 90, False, "A newer producer uses this transactional id."
    RESOURCE_NOT_FOUND = 91, False, "The request names something that does not exist."
    DUPLICATE_RESOURCE = 92, False, "The request names the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential does not meet the broker's rules."
    INCONSISTENT_VOTER_SET = 94, False, "The sender or the receiver is not one of the voters."
    INVALID_UPDATE_VERSION = 95, False, "The version of the update is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The forwarded principal could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, "The position is outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "There is no topic with this id here."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "Another broker uses this node id."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker has registered with this node id."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic's log has another topic id."
    INCONSISTENT_CLUSTER_ID = 104, False, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The transactional id is not known."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "A replica may not be in the new set of replicas in sync."
    NEW_LEADER_ELECTED = 108, False, "The partition changed its leader with this request."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset is in tiered storage."
    FENCED_MEMBER_EPOCH = 110, False, "The member's epoch is an old one; it must give up its partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, False, "Another member still holds this group instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group does not know this assignor, or not in this version."
    STALE_MEMBER_EPOCH = 113, False, "The member must heartbeat for its new epoch first."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request came to an endpoint of the wrong type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "There are no endpoints of this type."
    UNKNOWN_CONTROLLER_ID = 116, False, "There is no such controller."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The telemetry subscription is not valid or an old one."
    TELEMETRY_TOO_LARGE = 118, False, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The broker's registration is not valid."
    TRANSACTION_ABORTABLE = 120, False, "The transaction cannot go on; abort it, and the transactional id stays usable."
    INVALID_RECORD_STATE = 121, False, "The record cannot be acknowledged in its state."
    SHARE_SESSION_NOT_FOUND = 122, True, "There is no such share session."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session expects another epoch."
    FENCED_STATE_EPOCH = 124, False, "The state epoch of the share group is another one."
    INVALID_VOTER_KEY = 125, False, "The voter's key is not the receiver's."
    DUPLICATE_VOTER = 126, False, "The voter is one of the voters already."
    VOTER_NOT_FOUND = 127, False, "There is no such voter."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "What the client knows of the cluster is too old; it must bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The epoch of the topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The epoch of the topology is an old one."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "There are as many share sessions as allowed."

    # Ours, from 10,000 on: only in answers to our own APIs (docs/apis.md).
    LEDGER_CONFLICT = 10_000, False, "There is another decision under this key of the ledger."


class KafkaError(Exception):
    """Raised to refuse a request, or one item of it, with an error code of the protocol."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        """detail: what is wrong, for people; it is cut here, so that it fits every field of a response."""
        detail = detail[:_LONGEST_TEXT]
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    @property
    def text(self) -> str:
        """Return the text for people: the detail, else the code's own text. It fits every field of a response."""
        return self.detail or self.code.text

    def __str__(self) -> str:
        return f"{self.code.name}: {self.text}"


class MalformedFrame(Exception):
    """Raised for bytes that are no frame, or not the expected message. The connection is then closed."""
