"""A share session with one broker: its epochs, and what has to be said in the next request. Pure.

The rules: epoch 0 opens the session, each request counts it up by one, -1 ends it; one request is in flight at a time.
A request names only partitions that are new in the session, that leave it, or whose records are acknowledged; one that
opens the session names all, and cannot acknowledge anything. What went wrong on the way to the broker or back leaves
the epoch unknown, so the session is opened anew, which ends the old one: the broker then gives back what was acquired
in it. `stamp` counts sessions, so that records of an old one are told from those of the present one.
Source: Kafka's ShareSessionHandler; KIP-932.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ...protocol.errors import ErrorCode
from ...protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from .membership import Place

OPENING, CLOSING = 0, -1
_LAST_EPOCH = 2**31 - 1
GONE = (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH)
"""The codes of a whole answer after which the session is opened anew."""

Acks = Mapping[Place, Sequence[AcknowledgementBatch]]


class Ask(NamedTuple):
    """The session's fields of a ShareFetch: its epoch, the partitions to add, and those to forget."""

    epoch: int
    topics: list[ShareFetchRequest.Topic]
    forgotten: list[ShareFetchRequest.ForgottenTopic]


class ShareSession:
    """The share session with one broker. stamp: grows with each new session. partitions: those that the broker has in
    it.
    """

    def __init__(self) -> None:
        self.stamp = 0
        self.epoch = OPENING
        self.partitions: frozenset[Place] = frozenset()
        self._sending: frozenset[Place] | None = None  # in the session if the request in flight succeeds

    @property
    def is_open(self) -> bool:
        """Return whether the broker has the session, so that records can be acknowledged."""
        return self.epoch != OPENING

    def forgets(self, wanted: Iterable[Place]) -> bool:
        """Return whether a fetch of the wanted partitions would remove others from the session."""
        return not self.partitions <= frozenset(wanted)

    def ask(self, wanted: Iterable[Place], acks: Acks) -> Ask:
        """Return the session's fields of a ShareFetch for the wanted partitions. acks: acknowledgements for some of
        them; none before the session is open.
        """
        wanted = frozenset(wanted)
        assert self.is_open or not acks
        assert acks.keys() <= wanted
        named = sorted(wanted - self.partitions | acks.keys())
        topics: dict[bytes, list[ShareFetchRequest.Topic.Partition]] = {}
        for place in named:
            one = ShareFetchRequest.Topic.Partition(
                partition_index=place.partition, acknowledgement_batches=list(acks.get(place, ()))
            )
            topics.setdefault(place.topic_id, []).append(one)
        forgotten: dict[bytes, list[int]] = {}
        for place in sorted(self.partitions - wanted):
            forgotten.setdefault(place.topic_id, []).append(place.partition)
        self._sending = wanted
        return Ask(
            self.epoch,
            [ShareFetchRequest.Topic(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()],
            [
                ShareFetchRequest.ForgottenTopic(topic_id=topic_id, partitions=found)
                for topic_id, found in forgotten.items()
            ],
        )

    def acknowledge(self, acks: Acks) -> tuple[int, list[ShareAcknowledgeRequest.Topic]]:
        """Return the session's fields of a ShareAcknowledge: the epoch, and the topics with these acknowledgements."""
        assert self.is_open
        self._sending = self.partitions
        return self.epoch, ack_topics(acks)

    def close(self, acks: Acks) -> tuple[int, list[ShareAcknowledgeRequest.Topic]] | None:
        """Return epoch and topics of the last ShareAcknowledge, which also releases all other records; None without a
        session.
        """
        if not self.is_open:
            return None
        self.lost()
        return CLOSING, ack_topics(acks)

    def answered(self) -> None:
        """Note that the request in flight succeeded: the session's epoch grows by one."""
        assert self._sending is not None
        self.partitions, self._sending = self._sending, None
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def lost(self) -> None:
        """Forget the session, since the broker has none or another epoch. The next request opens a new one."""
        self.epoch, self.partitions, self._sending = OPENING, frozenset(), None
        self.stamp += 1


def codes_of(response: ShareFetchResponse | ShareAcknowledgeResponse) -> dict[Place, tuple[int, str | None]]:
    """Return the error code and text of each partition's acknowledgements in an answer."""
    codes: dict[Place, tuple[int, str | None]] = {}
    for topic in cast("Iterable[Any]", response.responses):
        for one in topic.partitions:
            place = Place(topic.topic_id, one.partition_index)
            if isinstance(response, ShareFetchResponse):
                codes[place] = one.acknowledge_error_code, one.acknowledge_error_message
            else:
                codes[place] = one.error_code, one.error_message
    return codes


def ack_topics(acks: Acks) -> list[ShareAcknowledgeRequest.Topic]:
    """Return the topics of a ShareAcknowledge with these acknowledgements."""
    topics: dict[bytes, list[ShareAcknowledgeRequest.Topic.Partition]] = {}
    for place in sorted(acks):
        one = ShareAcknowledgeRequest.Topic.Partition(
            partition_index=place.partition, acknowledgement_batches=list(acks[place])
        )
        topics.setdefault(place.topic_id, []).append(one)
    return [ShareAcknowledgeRequest.Topic(topic_id=topic_id, partitions=found) for topic_id, found in topics.items()]
