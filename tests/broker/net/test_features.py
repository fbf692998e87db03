"""A feature is offered only if all of its APIs are served, and in a form that old clients can read."""

import pytest
from fencepost.broker.net.features import (
    FEATURES,
    OWN_APIS,
    WITHOUT_NEW_APIS,
    complete_features,
    named_as_supported,
)
from fencepost.client.net.versions import NOTHING, OWN_FEATURE, SPOKEN, Offer, common
from fencepost.protocol.schema import OWN_APIS_FROM

TRANSACTIONS = {0: 12, 22: 5, 24: 3, 25: 4, 26: 5, 28: 5}
OURS = dict.fromkeys(OWN_APIS, 0)
FIRST = [1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3]
"""The versions of fencepost.version that have the first of our APIs, by key from OWN_APIS_FROM on."""


class Api:
    def __init__(self, highest: int) -> None:
        self.highest = highest

    def serves(self, version: int) -> bool:
        return version <= self.highest


def names(highest: dict[int, int]) -> list[str]:
    return [feature.name for feature in complete_features({key: Api(version) for key, version in highest.items()})]


def test_transaction_version_is_listed_only_if_the_transaction_apis_are_served() -> None:
    assert names({}) == ["metadata.version"]
    assert names(TRANSACTIONS) == ["metadata.version", "transaction.version"]


@pytest.mark.parametrize("key", TRANSACTIONS)
def test_no_transaction_feature_is_listed_if_one_of_its_apis_is_missing_or_too_old(key: int) -> None:
    assert names(TRANSACTIONS | {key: TRANSACTIONS[key] - 1}) == ["metadata.version"]
    assert names({each: highest for each, highest in TRANSACTIONS.items() if each != key}) == ["metadata.version"]


def test_the_feature_fencepost_version_is_offered_only_if_all_of_our_apis_are() -> None:
    assert names(OURS) == ["metadata.version", "fencepost.version"]
    for key in OURS:
        assert names({each: highest for each, highest in OURS.items() if each != key}) == ["metadata.version"]


def test_features_with_lowest_version_0_are_listed_from_api_versions_4_on() -> None:
    features = list(FEATURES)
    for version in range(4):
        assert [each.name for each in named_as_supported(features, version)] == [
            "metadata.version",
            "fencepost.version",
        ]
    assert named_as_supported(features, 4) == features


def test_features_list_transaction_version_2_and_the_newest_fencepost_version() -> None:
    versions = {feature.name: (feature.low, feature.high) for feature in FEATURES}
    assert versions["transaction.version"] == (0, 2)
    assert versions["fencepost.version"] == (1, max(*OWN_APIS.values(), *WITHOUT_NEW_APIS))


def test_our_api_keys_have_no_gap_and_each_new_api_raises_fencepost_version() -> None:
    """The SDK asks a broker for one of our APIs if the fencepost.version of the broker is at least that of the API. If
    two APIs came with one version, the SDK would ask a broker for one that it does not have yet.
    """
    assert sorted(OWN_APIS) == list(range(OWN_APIS_FROM, OWN_APIS_FROM + len(OWN_APIS)))
    since = [OWN_APIS[key] for key in sorted(OWN_APIS)]
    assert since[: len(FIRST)] == FIRST
    assert WITHOUT_NEW_APIS[0] == 4
    new = since[len(FIRST) :]
    told = f"since= of the newest API is {max(*since[:-1], *WITHOUT_NEW_APIS) + 1}, one above all versions before"
    assert all(version > 4 for version in new), told
    assert new == sorted(set(new)), told
    assert not set(new) & set(WITHOUT_NEW_APIS), told


@pytest.mark.parametrize("key", OWN_APIS)
def test_the_sdk_uses_each_of_our_apis_from_its_fencepost_version_on(key: int) -> None:
    request, api = next(each for each in SPOKEN.items() if each[1].key == key)
    assert request not in common(NOTHING)
    assert request not in common(Offer({}, {OWN_FEATURE: OWN_APIS[key] - 1}))
    assert common(Offer({}, {OWN_FEATURE: OWN_APIS[key]}))[request] == (api.min, api.max)
