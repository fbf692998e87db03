"""Decides about requests that change or list users with passwords. Pure.

The rules are Kafka's: a request may name each user once, for one mechanism. If the change of one user is refused, this
user stays as it is, and the other users of the request are changed. As in Kafka, a salt may be empty, and a salted
password may have another size than its mechanism produces, because clients' own tests send such. Unlike in Kafka, these
and the name have a limited length, and a salted password must not be empty (Kafka fails at an empty one). Asked of
Apache Kafka 4.3.1; KIP-554.
"""

from collections.abc import Generator
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.scram_users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponse,
)
from .credentials import (
    LEAST_ITERATIONS,
    LONGEST_NAME,
    LONGEST_SALT_BYTES,
    LONGEST_SALTED_BYTES,
    MAX_ITERATIONS,
    Change,
    Mechanism,
    ScramUsers,
    credential_from,
    credential_removed,
    credential_set,
)

Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion
Altered = AlterUserScramCredentialsResponse.Result
Described = DescribeUserScramCredentialsResponse.Result


class Refusal(NamedTuple):
    """Why the change of a user is refused: the error code, and the text for the client."""

    code: ErrorCode
    text: str


TWICE = Refusal(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
NO_CREDENTIAL = Refusal(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
UNKNOWN_MECHANISM = Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def decide_changes(
    users: ScramUsers, request: AlterUserScramCredentialsRequest, most_users: int
) -> Generator[int, None, tuple[dict[str, Change], list[Altered]]]:
    """Return the records to write, by user, and the result for each user, in the request's order.

    Yields 1 before each deletion or upsertion, so that the caller can let other requests run. most_users: the most
    users that may exist, including those that the request adds.
    """
    refused: dict[str, Refusal | None] = {}
    changes: dict[str, Change] = {}
    new: set[str] = set()
    asked: list[Deletion | Upsertion] = [*request.deletions, *request.upsertions]
    for each in asked:
        yield 1
        name = each.name
        if refused.get(name) is not None:
            continue
        refused[name] = TWICE if name in refused else _why_not(users, each)
        changes.pop(name, None)
        new.discard(name)
        if refused[name] is None and isinstance(each, Upsertion) and not users.has(name):
            new.add(name)
            if users.count + len(new) > most_users:
                new.discard(name)
                refused[name] = Refusal(ErrorCode.POLICY_VIOLATION, f"there may be {most_users} users (max.users)")
        if refused[name] is None:
            changes[name] = _change(each)
    return changes, [_alter_result(name, why) for name, why in refused.items()]


def _why_not(users: ScramUsers, asked: Deletion | Upsertion) -> Refusal | None:
    """Return why Kafka would refuse the change of a user; None if it is valid."""
    if not asked.name:
        return _unacceptable("Username must not be empty")
    if asked.mechanism not in list(Mechanism):
        return UNKNOWN_MECHANISM
    if isinstance(asked, Deletion):
        return None if users.find(asked.name, Mechanism(asked.mechanism)) else NO_CREDENTIAL
    if len(asked.name) > LONGEST_NAME:
        return _unacceptable(f"Username must not be longer than {LONGEST_NAME} characters")
    if asked.iterations < LEAST_ITERATIONS:
        return _unacceptable("Too few iterations")
    if asked.iterations > MAX_ITERATIONS:
        return _unacceptable("Too many iterations")
    if len(asked.salt) > LONGEST_SALT_BYTES:
        return _unacceptable(f"Salt must not be longer than {LONGEST_SALT_BYTES} bytes")
    if not 0 < len(asked.salted_password) <= LONGEST_SALTED_BYTES:
        return _unacceptable(f"Salted password must be of 1 to {LONGEST_SALTED_BYTES} bytes")
    return None


def _unacceptable(text: str) -> Refusal:
    """Return the refusal UNACCEPTABLE_CREDENTIAL with this text."""
    return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, text)


def _change(asked: Deletion | Upsertion) -> Change:
    """Return the record that sets or removes the credential."""
    mechanism = Mechanism(asked.mechanism)
    if isinstance(asked, Deletion):
        return credential_removed(asked.name, mechanism)
    credential = credential_from(mechanism, bytes(asked.salted_password), bytes(asked.salt), asked.iterations)
    return credential_set(asked.name, credential)


def _alter_result(name: str, why: Refusal | None) -> Altered:
    """Return the result for a user. why: the refusal; None for success."""
    return Altered(user=name) if why is None else Altered(user=name, error_code=why.code, error_message=why.text)


def refusal(name: str, error: KafkaError) -> Altered:
    """Return the result for a user who was not changed, because of this error."""
    return Altered(user=name, error_code=error.code, error_message=error.text)


Infos = tuple[tuple[int, int], ...]
"""The mechanism and iterations of each credential of a user. They are not secret."""


def infos_of(users: ScramUsers, name: str) -> Infos:
    """Return (mechanism, iterations) of each credential that the user has now."""
    return tuple(sorted((int(each.mechanism), each.iterations) for each in users.of(name)))


def describe(name: str, infos: Infos) -> Described:
    """Return the response row of a user with these credentials. Without credentials, it says that the user does not
    exist.
    """
    if not infos:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return _not_described(name, KafkaError(ErrorCode.RESOURCE_NOT_FOUND, text))
    made = [Described.Credential(mechanism=mechanism, iterations=iterations) for mechanism, iterations in infos]
    return Described(user=name, error_message="", credential_infos=made)


def refuse_duplicate(name: str) -> Described:
    """Return the response row that refuses to describe a user whom the request names more than once."""
    text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    return _not_described(name, KafkaError(ErrorCode.DUPLICATE_RESOURCE, text))


def _not_described(name: str, error: KafkaError) -> Described:
    """Return the response row of a user that cannot be described, with the error."""
    return Described(user=name, error_code=error.code, error_message=error.text)
