"""Where rights are answered otherwise than by Kafka, and why; and which APIs need none."""

from __future__ import annotations

from dataclasses import dataclass

NO_RIGHT_NEEDED = {
    "SaslHandshake": "who asks has not shown yet who he is",
    "SaslAuthenticate": "the same",
}
"""APIs without a row."""


@dataclass(frozen=True)
class Difference:
    """In one row and version, who gets `kafkas` from Kafka gets `ours`, or of them only `users`."""

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
    """By user: Kafka's answer and ours. kafkas: by user, too."""
    return {
        user: (answer, each.ours)
        for each in DIFFERENCES
        if each.cell == cell
        for user, answer in kafkas.items()
        if answer == each.kafkas and (not each.users or user in each.users)
    }
