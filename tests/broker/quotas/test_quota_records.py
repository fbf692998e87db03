"""Quotas in the security log: what is written is read, and what was not written is refused."""

import msgpack
import pytest
from fencepost.broker.quotas.entities import CLIENT_ID, IP, RULES, USER, Quotas, entity_of
from fencepost.broker.quotas.quota_records import (
    DamagedQuotaRecord,
    NewerQuotaRecord,
    apply_quota,
    quota_removed,
    quota_set,
)
from hypothesis import given
from hypothesis import strategies as st

names = st.text(max_size=8) | st.none()
entities = st.one_of(
    st.fixed_dictionaries({USER: names}),
    st.fixed_dictionaries({CLIENT_ID: names}),
    st.fixed_dictionaries({USER: names, CLIENT_ID: names}),
    st.fixed_dictionaries({IP: names}),
).map(entity_of)
values = st.floats(min_value=1e-9, allow_infinity=True)


@pytest.mark.slow
@given(st.lists(st.tuples(entities, st.sampled_from(sorted(RULES)), values | st.none())))
def test_quota_records_read_back_and_the_newest_value_wins(wanted) -> None:
    quotas, expected = Quotas(), {}
    for entity, key, value in wanted:
        if (entity[0][0] == IP) != RULES[key].of_address:
            continue
        apply_quota(quotas, *(quota_removed(entity, key) if value is None else quota_set(entity, key, value)))
        expected[entity, key] = value
    found = {(entity, key): value for entity in quotas for key, value in quotas.of(entity).items()}
    assert found == {subject: value for subject, value in expected.items() if value is not None}


KEY = quota_set(entity_of({USER: "u"}), "producer_byte_rate", 1.0)[0]


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (KEY, b"", DamagedQuotaRecord),
        (KEY, msgpack.packb([0]), DamagedQuotaRecord),
        (KEY, msgpack.packb([0, 7]), DamagedQuotaRecord),
        (KEY, msgpack.packb([0, 0.0]), DamagedQuotaRecord),
        (KEY, msgpack.packb([0, -1.0]), DamagedQuotaRecord),
        (KEY, msgpack.packb([0, float("nan")]), DamagedQuotaRecord),
        (KEY, msgpack.packb([1, "another"]), NewerQuotaRecord),
        (msgpack.packb(["quota", "another_rate", ["user", "u"]]), None, NewerQuotaRecord),
        (msgpack.packb(["quota", "producer_byte_rate"]), None, DamagedQuotaRecord),
        (msgpack.packb(["quota", "producer_byte_rate", ["ip", "10.0.0.1"]]), None, DamagedQuotaRecord),
        (msgpack.packb(["quota", "connection_creation_rate", ["user", "u"]]), None, DamagedQuotaRecord),
        (msgpack.packb(["quota", "producer_byte_rate", ["group", "u"]]), None, DamagedQuotaRecord),
        (msgpack.packb(["quota", "producer_byte_rate", ["user", 7]]), None, DamagedQuotaRecord),
        (b"\xc1", None, DamagedQuotaRecord),
    ],
)
def test_a_damaged_or_newer_quota_record_is_refused_and_changes_nothing(key, value, error) -> None:
    quotas = Quotas()
    with pytest.raises(error):
        apply_quota(quotas, key, value)
    assert len(quotas) == 0
