"""CreateAcls, DescribeAcls, DeleteAcls through a whole broker; what Kafka answers is in tests/conformance."""

import logging

import pytest
from acl_client import creating, deleting, described, describing, guarded
from fencepost.broker.handlers import acls
from fencepost.broker.net import turns
from fencepost.protocol.errors import ErrorCode
from simulated_broker import SimulatedBroker
from simulated_client import SimulatedClient

OK, INVALID, POLICY = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION
FORBIDDEN, DISABLED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.SECURITY_DISABLED
ALLOW, DENY = "allow User:alice READ TOPIC = orders", "deny User:* ALL GROUP ^ o @10.0.0.1"
OTHER = "allow User:bob WRITE TRANSACTIONAL_ID = *"


def many(count: int, who: str = "User:alice") -> list[str]:
    return [f"allow {who} READ TOPIC = t{number:05}" for number in range(count)]


def created(broker: SimulatedBroker, *rules: str) -> list[int]:
    """Create ACLs. Returns the error code of each."""
    return [each.error_code for each in broker.ask(creating(*rules)).results]


def deleted(broker: SimulatedBroker, *filters: dict[str, object]) -> list[tuple[int, int]]:
    """Delete ACLs. Returns the error code, and how many ACLs matched, of each filter."""
    return [(each.error_code, len(each.matching_acls)) for each in broker.ask(deleting(*filters)).filter_results]


def test_acls_can_be_created_described_and_deleted() -> None:
    with SimulatedBroker(guarded()) as broker:
        assert created(broker, ALLOW, DENY, OTHER) == [OK] * 3
        assert described(broker) == [ALLOW, OTHER, DENY]
        assert described(broker, principal_filter="User:*") == [DENY]
        assert deleted(broker, {"principal_filter": "User:bob"}, {"host_filter": "10.0.0.1"}) == [(OK, 1)] * 2
        assert described(broker) == [ALLOW]
        assert not broker.broker.metrics.failures


def test_without_an_authorizer_acl_requests_get_security_disabled() -> None:
    with SimulatedBroker() as broker:
        assert created(broker, ALLOW, DENY) == [DISABLED] * 2
        assert deleted(broker, {}, {}) == [(DISABLED, 0)] * 2
        assert broker.ask(describing()).error_code == DISABLED


def test_describing_acls_needs_cluster_describe_and_changing_them_cluster_alter() -> None:
    """With allow.everyone.if.no.acl.found, both are allowed as long as there is no ACL for the cluster."""
    with SimulatedBroker(guarded()) as broker:
        created(broker, ALLOW, "allow User:ANONYMOUS DESCRIBE CLUSTER = kafka-cluster")
        with broker.again(guarded(super_users="User:admin")) as reading:
            assert len(described(reading)) == 2
            assert created(reading, OTHER, DENY) == [FORBIDDEN] * 2
            assert deleted(reading, {}) == [(FORBIDDEN, 0)]
            assert len(described(reading)) == 2
    with SimulatedBroker(guarded(super_users="")) as closed:
        assert closed.ask(describing()).error_code == FORBIDDEN
        assert created(closed, ALLOW) == [FORBIDDEN]
    with SimulatedBroker(guarded(super_users="", allow_everyone_if_no_acl_found=True)) as open_:
        assert created(open_, ALLOW, "allow User:admin ALTER CLUSTER = kafka-cluster") == [OK] * 2
        assert created(open_, OTHER) == [FORBIDDEN], "the cluster has an ACL now, and it allows only User:admin"


def test_an_acl_change_applies_to_the_next_request_of_the_same_connection() -> None:
    with SimulatedBroker(guarded(super_users="", allow_everyone_if_no_acl_found=True)) as broker:
        client = SimulatedClient(broker)
        denying = creating("deny User:ANONYMOUS ALTER CLUSTER = kafka-cluster")
        first, second = client.ask_together(denying, creating(ALLOW))
        assert [each.error_code for each in first.results + second.results] == [OK, FORBIDDEN]


def test_create_acls_refuses_each_invalid_rule_and_creates_the_valid_ones() -> None:
    with SimulatedBroker(guarded()) as broker:
        wrong = ["allow alice READ TOPIC = t", "allow User:alice READ CLUSTER = t", "allow User:a ANY TOPIC = t"]
        long = [f"allow User:{'x' * 996} READ TOPIC = t", f"allow User:a READ TOPIC = {'x' * 1_001}"]
        fitting = f"allow User:{'x' * 995} READ TOPIC = t @{'y' * 1_000}"
        codes = created(broker, ALLOW, *wrong, *long, fitting, OTHER)
        assert codes == [OK, *[INVALID] * 5, OK, OK]
        assert described(broker) == sorted([ALLOW, OTHER, fitting])


def test_create_acls_beyond_max_acls_is_refused() -> None:
    with SimulatedBroker(guarded(max_acls=2)) as broker:
        assert created(broker, ALLOW, ALLOW, DENY, OTHER, ALLOW) == [OK, OK, OK, POLICY, OK]
        assert created(broker, OTHER, DENY) == [POLICY, OK]
        deleted(broker, {"principal_filter": "User:*"})
        assert created(broker, OTHER) == [OK]


def test_creating_or_deleting_too_many_acls_in_one_request_changes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "MAX_CHANGES", 4)
    with SimulatedBroker(guarded()) as broker:
        assert created(broker, *many(5)) == [POLICY] * 5
        assert described(broker) == []
        assert created(broker, *many(4)) == [OK] * 4
        assert created(broker, ALLOW) == [OK]
        # There are five ACLs now. In each request the filters together match more than four.
        assert deleted(broker, {}, {"operation": 4}) == [(INVALID, 0)] * 2
        assert deleted(broker, {"operation": 3, "resource_name_filter": "t00001"}, *[{}] * 2) == [(INVALID, 0)] * 3
        assert len(described(broker)) == 5
        assert deleted(broker, {"resource_name_filter": "orders"}) == [(OK, 1)]
        assert deleted(broker, {}) == [(OK, 4)]


def test_delete_acls_with_filters_that_scan_too_many_acls_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that names neither a principal nor a resource is compared with all rules."""
    monkeypatch.setattr(acls, "MAX_LOOKED_AT", 20)
    with SimulatedBroker(guarded()) as broker:
        assert created(broker, *many(8)) == [OK] * 8
        other_hosts = [{"host_filter": f"10.0.0.{number}"} for number in range(3)]
        with monkeypatch.context() as patched:
            patched.setattr(acls, "_find", lambda *_: pytest.fail("a rule is compared before the refusal"))
            asked = {"operation": 3, "resource_name_filter": "t00001"}, *other_hosts
            assert deleted(broker, *asked) == [(INVALID, 0)] * 4
        assert len(described(broker)) == 8
        assert deleted(broker, *other_hosts[:2]) == [(OK, 0)] * 2
        named = [{"principal_filter": f"User:{number}"} for number in range(50)]
        assert deleted(broker, *named, {"principal_filter": "nobody"}) == [(OK, 0)] * 51
        monkeypatch.setattr(acls, "MAX_LOOKED_AT", 1)
        assert deleted(broker, {}) == [(OK, 8)], "a single filter may be compared with all rules"


@pytest.mark.slow
def test_a_large_acl_change_is_made_in_parts_with_other_requests_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_UNITS", acls.CHANGES_AT_ONCE)  # so that each turn of the loop makes one part
    with SimulatedBroker(guarded()) as broker:
        rules = many(2_000)
        store = broker.broker.store
        client, other = SimulatedClient(broker), SimulatedClient(broker)
        client.send(creating(*rules))
        for _ in range(40):
            other.send(describing())
            broker.wait(0)
        seen = [sum(len(each.acls) for each in other.receive().resources) for _ in range(40)]
        assert any(0 < count < 2_000 for count in seen)
        assert {each.error_code for each in client.receive().results} == {OK}
        assert described(broker) == rules
        before = store.last_unit
        client.send(deleting({}))
        client.receive()
        assert store.last_unit == before + 2_000 // acls.CHANGES_AT_ONCE
        with broker.after_power_cut() as again:
            assert described(again) == []


def test_acls_that_two_requests_delete_at_once_are_reported_by_one_of_them() -> None:
    with SimulatedBroker(guarded()) as broker:
        created(broker, *many(300))
        clients = [SimulatedClient(broker) for _ in range(2)]
        for client in clients:
            client.send(deleting({}, {}))
        answers = [client.receive().filter_results for client in clients]
        assert {each.error_code for results in answers for each in results} == {OK}
        matched = [[len(each.matching_acls) for each in results] for results in answers]
        assert sorted(matched) == [[0, 0], [300, 300]], "each of the two filters of one request matches all"
        assert described(broker) == []
        with broker.again() as restarted:
            assert described(restarted) == []


def test_acl_changes_are_logged_with_user_and_address(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), SimulatedBroker(guarded()) as broker:
        created(broker, ALLOW, DENY)
        deleted(broker, {"principal_filter": "User:alice"})
    reported = [record.message for record in caplog.records if " of access " in record.message]
    host = reported[0].rpartition(" ")[2]
    assert reported == [
        f"2 rules of access made by User:ANONYMOUS from {host}",
        f"1 rule of access removed by User:ANONYMOUS from {host}",
    ]
