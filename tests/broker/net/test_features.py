"""Features are offered when all of what they are made of is there, and said so that old clients can read it."""

import pytest
from fencepost.broker.net.features import FEATURES, OWN_APIS_FROM, complete_features, named_as_supported
from fencepost.client.net.versions import OWN_FEATURE, OWN_LEVELS

TRANSACTIONS = {0: 12, 22: 5, 24: 3, 25: 4, 26: 5, 28: 5}
OURS = dict.fromkeys(range(OWN_APIS_FROM, OWN_APIS_FROM + 11), 0)


class Api:
    def __init__(self, highest: int) -> None:
        self.highest = highest

    def serves(self, version: int) -> bool:
        return version <= self.highest


def names(highest: dict[int, int]) -> list[str]:
    return [feature.name for feature in complete_features({key: Api(version) for key, version in highest.items()})]


def test_a_broker_without_transactions_offers_no_version_of_them() -> None:
    assert names({}) == ["metadata.version"]
    assert names(TRANSACTIONS) == ["metadata.version", "transaction.version"]


@pytest.mark.parametrize("key", TRANSACTIONS)
def test_no_transaction_feature_is_listed_if_one_of_its_apis_is_missing_or_too_old(key: int) -> None:
    assert names(TRANSACTIONS | {key: TRANSACTIONS[key] - 1}) == ["metadata.version"]
    assert names({each: highest for each, highest in TRANSACTIONS.items() if each != key}) == ["metadata.version"]


def test_fenceposts_own_apis_are_offered_completely_or_not_at_all() -> None:
    assert names(OURS) == ["metadata.version", "fencepost.version"]
    assert names(dict(list(OURS.items())[:7])) == ["metadata.version"]


def test_features_whose_lowest_version_is_0_are_listed_from_version_4_on() -> None:
    features = list(FEATURES)
    for version in range(4):
        assert [each.name for each in named_as_supported(features, version)] == [
            "metadata.version",
            "fencepost.version",
        ]
    assert named_as_supported(features, 4) == features


def test_features_list_the_versions_that_clients_of_transactions_look_for() -> None:
    versions = {feature.name: (feature.low, feature.high) for feature in FEATURES}
    assert versions["transaction.version"] == (0, 2)
    assert versions["fencepost.version"] == (1, 4)


def test_the_sdk_knows_from_which_feature_version_on_each_of_our_apis_is_there() -> None:
    """A new version of fencepost.version without new APIs, as the fourth, has no row in OWN_LEVELS."""
    (ours,) = (feature for feature in FEATURES if feature.name == OWN_FEATURE)
    keys = [key for key, _ in ours.needs]
    assert set(OWN_LEVELS) <= set(keys)
    told = "a new API or version: is its first key in OWN_LEVELS? Else the SDK asks older brokers for it"
    assert (max(keys), ours.high, max(OWN_LEVELS.values())) == (20_010, 4, 3), told
