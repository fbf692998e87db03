"""Requests about rules, quotas and users that name many things each."""

from typing import Any

import quota_client
from acl_client import creating, deleting
from fencepost.protocol.messages.scram_users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from work_of_requests import World

MANY = 400
OFTEN = 30
NAMES = [f"n{number}" for number in range(MANY)]


def create_acls(world: World) -> list[Any]:
    return [creating(*[f"allow User:{name} READ TOPIC ^ {name * (number % 9)}" for number, name in enumerate(NAMES)])]


def delete_acls(world: World) -> list[Any]:
    nothing = [{"principal_filter": "User:nobody"}] * OFTEN
    return [deleting(*nothing), deleting(*[{"resource_type_filter": 2, "resource_name_filter": "xx"}] * MANY, {})]


def alter_quotas(world: World) -> list[Any]:
    rates = dict.fromkeys(("producer_byte_rate", "consumer_byte_rate", "request_percentage"), 5.0)
    return [quota_client.altering(*[quota_client.entry(f"user={name}", **rates) for name in NAMES])]


def alter_users(world: World) -> list[Any]:
    made = AlterUserScramCredentialsRequest
    put = [
        made.Upsertion(name=name, mechanism=2, iterations=4096, salt=b"s" * 1_024, salted_password=b"p" * 64)
        for name in NAMES
    ]
    return [made(deletions=[], upsertions=put)]


def describe_users(world: World) -> list[Any]:
    made = DescribeUserScramCredentialsRequest
    return [made(users=[made.User(name=f"u{number}") for number in range(MANY)]), *[made(users=None)] * OFTEN]
