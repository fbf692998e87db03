"""Where the answers in the matrix of rights differ from Kafka's, and why; and which APIs need no right."""

from __future__ import annotations

from dataclasses import dataclass

NO_RIGHT_NEEDED = {
    "SaslHandshake": "the client has not authenticated yet",
    "SaslAuthenticate": "the same",
}
"""APIs without a row."""


@dataclass(frozen=True)
class Difference:
    """A difference in one row and version: users who get the answer `kafkas` from Kafka get `ours` here. users: the
    only ones for whom this is so; empty for all.
    """

    cell: str
    kafkas: str
    ours: str
    why: str
    users: tuple[str, ...] = ()


DIFFERENCES = [
    Difference(
        "Produce in a transaction of an empty id v9",
        "[t [TOPIC_AUTHORIZATION_FAILED]]",
        "[t [INVALID_REQUEST]]",
        "that no transaction has such an id concerns the whole request, so it is found before any topic is looked at",
    ),
    Difference(
        "DescribeUserScramCredentials v0",
        "CLUSTER_AUTHORIZATION_FAILED [CLUSTER_AUTHORIZATION_FAILED]",
        "CLUSTER_AUTHORIZATION_FAILED",
        "the second is of a user without a name, whom nobody asked for",
    ),
]


def of(cell: str, kafkas: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return {user: (Kafka's answer, ours)} for the users whose answers differ in this row and version. kafkas: Kafka's
    answers, by user.
    """
    return {
        user: (answer, each.ours)
        for each in DIFFERENCES
        if each.cell == cell
        for user, answer in kafkas.items()
        if answer == each.kafkas and (not each.users or user in each.users)
    }
