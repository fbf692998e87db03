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
    """In one row and version, `users` get `ours` where Kafka answers `kafkas`."""

    cell: str
    users: tuple[str, ...]
    kafkas: str
    ours: str
    why: str


DIFFERENCES = [
    Difference(
        "Produce in a transaction of an empty id v9",
        ("not Topic Write", "not Topic All", "any TransactionalId All"),
        "[t [TOPIC_AUTHORIZATION_FAILED]]",
        "[t [INVALID_REQUEST]]",
        "that no transaction has such an id concerns the whole request, so it is found before any topic is looked at",
    ),
]


def of(cell: str) -> dict[str, tuple[str, str]]:
    """By user: Kafka's answer and ours."""
    return {user: (each.kafkas, each.ours) for each in DIFFERENCES if each.cell == cell for user in each.users}
