"""Which quota counts: Kafka's order, and who shares what is measured."""

from itertools import combinations

from fencepost.broker.quotas.entities import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    USER,
    Limit,
    Quotas,
    entity_of,
)

KAFKAS_ORDER = [
    ({USER: "alice", CLIENT_ID: "app"}, ("alice", "app")),
    ({USER: "alice", CLIENT_ID: None}, ("alice", "app")),
    ({USER: "alice"}, ("alice", "")),
    ({USER: None, CLIENT_ID: "app"}, ("alice", "app")),
    ({USER: None, CLIENT_ID: None}, ("alice", "app")),
    ({USER: None}, ("alice", "")),
    ({CLIENT_ID: "app"}, ("", "app")),
    ({CLIENT_ID: None}, ("", "app")),
]
OTHERS = [{USER: "bob"}, {CLIENT_ID: "other"}, {USER: "alice", CLIENT_ID: "other"}, {USER: "bob", CLIENT_ID: "app"}]


def test_of_all_matching_quotas_the_first_in_kafkas_order_applies() -> None:
    for count in range(len(KAFKAS_ORDER) + 1):
        for chosen in combinations(range(len(KAFKAS_ORDER)), count):
            quotas = Quotas()
            for number in reversed(chosen):
                quotas.put(entity_of(KAFKAS_ORDER[number][0]), PRODUCER_BYTE_RATE, number + 1.0)
            for other in OTHERS:
                quotas.put(entity_of(other), PRODUCER_BYTE_RATE, 99.0)
            expected = Limit(KAFKAS_ORDER[chosen[0]][1], chosen[0] + 1.0) if chosen else None
            assert quotas.limit(PRODUCER_BYTE_RATE, "alice", "app") == expected


def test_each_kind_of_quota_falls_back_to_less_specific_entities_on_its_own() -> None:
    quotas = Quotas()
    quotas.put(entity_of({USER: "alice"}), PRODUCER_BYTE_RATE, 1.0)
    quotas.put(entity_of({CLIENT_ID: None}), CONSUMER_BYTE_RATE, 2.0)
    assert quotas.limit(PRODUCER_BYTE_RATE, "alice", "app") == Limit(("alice", ""), 1.0)
    assert quotas.limit(CONSUMER_BYTE_RATE, "alice", "app") == Limit(("", "app"), 2.0)
    assert quotas.limit(PRODUCER_BYTE_RATE, "bob", "app") is None


def test_a_client_without_a_client_id_shares_the_default_quota() -> None:
    quotas = Quotas()
    quotas.put(entity_of({CLIENT_ID: None}), PRODUCER_BYTE_RATE, 1.0)
    assert quotas.limit(PRODUCER_BYTE_RATE, "alice", "") == Limit(("", ""), 1.0)


def test_an_address_without_its_own_rate_has_the_default_rate() -> None:
    quotas = Quotas()
    assert quotas.address_limit("10.0.0.1") is None
    quotas.put(entity_of({IP: None}), CONNECTION_CREATION_RATE, 5.0)
    quotas.put(entity_of({IP: "10.0.0.1"}), CONNECTION_CREATION_RATE, 9.0)
    assert (quotas.address_limit("10.0.0.1"), quotas.address_limit("10.0.0.2")) == (9.0, 5.0)
    quotas.put(entity_of({IP: "10.0.0.1"}), CONNECTION_CREATION_RATE, None)
    assert quotas.address_limit("10.0.0.1") == 5.0


def test_removed_quotas_leave_no_entity_behind() -> None:
    quotas = Quotas()
    changes = []
    quotas.on_change = lambda: changes.append(len(quotas))
    alice = entity_of({USER: "alice"})
    for value in (1.0, 2.0, None, None):
        quotas.put(alice, PRODUCER_BYTE_RATE, value)
    assert (len(quotas), quotas.has_any(PRODUCER_BYTE_RATE), changes) == (0, False, [1, 1, 0, 0])
