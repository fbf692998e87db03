"""The features of the broker that clients look up in the answer to ApiVersions, such as transaction.version.

The rule: a feature is offered only if every request that belongs to it is served, and an offered feature is finalized
at its highest version. Clients of transaction.version 2 do not send AddPartitionsToTxn, no matter what else the table
says.

Sources: KIP-584, KIP-890, KIP-932, KAFKA-17011.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ...protocol.apis import APIS

ZERO_SINCE = 4
"""Older versions of ApiVersions do not name a supported feature that begins at 0: clients took that for damage."""


class Feature(NamedTuple):
    """A feature, with its lowest and highest version. needs: the APIs that it depends on, each as (API key,
    version).
    """

    name: str
    low: int
    high: int
    needs: tuple[tuple[int, int], ...] = ()


OWN_APIS = {key: api.since for key, api in APIS.items() if api.since}
"""The lowest version of fencepost.version that has it, by key of an API of our own."""
WITHOUT_NEW_APIS = (4,)
"""Versions of fencepost.version that changed APIs which were there: 4 has hold and prefix in those of the ledger."""
METADATA_VERSION = 30  # 4.3-IV0: tools read the release off it, and hide what older ones did not have
OLDEST_METADATA_VERSION = 7

FEATURES = (
    Feature("metadata.version", OLDEST_METADATA_VERSION, METADATA_VERSION),
    Feature("transaction.version", 0, 2, ((0, 12), (22, 5), (24, 3), (25, 4), (26, 5), (28, 5))),
    Feature("group.version", 0, 1, ((68, 1), (69, 1), (8, 9), (9, 9))),
    Feature("share.version", 0, 1, ((76, 1), (77, 1), (78, 2), (79, 2))),
    Feature("fencepost.version", 1, max(*OWN_APIS.values(), *WITHOUT_NEW_APIS), tuple((key, 0) for key in OWN_APIS)),
)


class _Api(Protocol):
    @property
    def key(self) -> int:
        """Kafka's number of the API."""
        ...

    @property
    def max(self) -> int:
        """The newest version that is served."""
        ...

    def serves(self, version: int) -> bool:
        """Return whether this version is served."""
        ...


class _Settings(Protocol):
    @property
    def transaction_two_phase_commit_enable(self) -> bool:
        """The setting of this name, from transaction_settings.py."""
        ...


INIT_PRODUCER_ID, WITH_TWO_PHASES = 22, 6


def highest_served(api: _Api, settings: _Settings) -> int:
    """Return the newest served version of an API. For InitProducerId it is one higher if two-phase commit (KIP-939) is
    enabled.
    """
    opted_in = api.key == INIT_PRODUCER_ID and settings.transaction_two_phase_commit_enable
    return WITH_TWO_PHASES if opted_in else api.max


def complete_features(served: Mapping[int, _Api]) -> list[Feature]:
    """Return the features whose needed APIs are all served. served: the APIs by key."""
    return [
        feature
        for feature in FEATURES
        if all(key in served and served[key].serves(version) for key, version in feature.needs)
    ]


def named_as_supported(features: list[Feature], version: int) -> list[Feature]:
    """Return the features that an ApiVersions answer of this version may list as supported.

    Older clients cannot read a feature whose lowest version is 0. All may be listed as finalized.
    """
    return [feature for feature in features if feature.low > 0 or version >= ZERO_SINCE]
