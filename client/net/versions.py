"""The version of each API that a client uses: the highest that both sides know. Pure.

The rule: an API that the broker does not list is not used; nor are versions that Kafka reserves for brokers or lists
only if configured to (unstable ones). Source: KIP-35, KIP-511, KIP-584.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ...protocol.apis import APIS, Api
from ...protocol.messages.cluster import ApiVersionsResponse
from ..errors import UnsupportedVersionError

OWN_FEATURE = "fencepost.version"
_NOT_OURS = "only fencepost has this API: this is another broker, such as Apache Kafka, or an older fencepost"
TRANSACTION_FEATURE = "transaction.version"

SPOKEN: dict[type, Api] = {api.request: api for api in APIS.values()}
"""Every API that the client knows, by the class of its request."""


class Offer(NamedTuple):
    """The API versions and finalized features that a broker listed in ApiVersions."""

    versions: Mapping[int, tuple[int, int]]  # by API key: lowest, highest
    features: Mapping[str, int]  # finalized


NOTHING = Offer({}, {})


def offer_of(response: ApiVersionsResponse) -> Offer:
    """Return the versions and features in an ApiVersions response. Only finalized features count; with an epoch below
    0 they are not known yet.
    """
    features: dict[str, int] = {}
    if response.finalized_features_epoch >= 0:
        features = {one.name: one.max_version_level for one in response.finalized_features}
    return Offer({one.api_key: (one.min_version, one.max_version) for one in response.api_keys}, features)


def common(offer: Offer, apis: Iterable[Api] = SPOKEN.values()) -> dict[type, tuple[int, int]]:
    """Return lowest and highest version that both sides know, by request; APIs without one are left out."""
    found: dict[type, tuple[int, int]] = {}
    for api in apis:
        if api.since:  # fencepost's own: known by that feature, and not by the list of ApiVersions
            if offer.features.get(OWN_FEATURE, 0) >= api.since:
                found[api.request] = (api.min, api.max)
            continue
        low, high = offer.versions.get(api.key, (0, -1))
        low, high = max(low, api.min), min(high, api.max)
        if low <= high:
            found[api.request] = (low, high)
    return found


def choose(known: Mapping[type, tuple[int, int]], request_class: type, cap: int | None, where: str) -> int:
    """Return the highest version in `known` for this request, at most `cap`. where: the broker's name, for error
    messages.

    Raises UnsupportedVersionError.
    """
    api = SPOKEN[request_class]
    low, high = known.get(request_class, (0, -1))
    if low > high:
        raise UnsupportedVersionError(
            f"{where} does not support {api.name} in a version that this client supports ({api.min} to {api.max})",
            hint=_NOT_OURS if api.since else "the broker is too old or too new for this client",
        )
    if cap is None or cap >= high:
        return high
    if cap < low:
        raise UnsupportedVersionError(f"{where} no longer supports {api.name} version {cap}, which is needed here")
    return cap


def too_old(api_name: str, wanted: int, has: int, what: str, where: str, release: str) -> UnsupportedVersionError:
    """Return the error for a call that an older version of the API would execute differently."""
    return UnsupportedVersionError(
        f"{where} supports {api_name} up to version {has}: {what} needs version {wanted}",
        hint=f"use a broker of Kafka {release} or newer",
    )
