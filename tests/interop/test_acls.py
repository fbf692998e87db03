"""Rules of access by other people's admin clients: made, described, removed, and the same after kill -9."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import kafka.errors
import pytest
from broker_process import BrokerProcess, broker_process
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from fencepost.broker.config.security_settings import STANDARD_AUTHORIZER
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
)
from kafka.admin import ResourceType as KafkaResourceType

ON = ("-X", f"authorizer.class.name={STANDARD_AUTHORIZER}")
SUPER = ("-X", "super.users=User:ANONYMOUS")

Rule = tuple[str, str, str, str, str, str, str]
"""Permission, principal, host, operation, type, pattern and name, as Kafka calls them."""

READ: Rule = ("ALLOW", "User:alice", "*", "READ", "TOPIC", "LITERAL", "orders")
DENY: Rule = ("DENY", "User:*", "10.0.0.1", "ALL", "GROUP", "PREFIXED", "or")
WRITE: Rule = ("ALLOW", "User:bob", "*", "WRITE", "TRANSACTIONAL_ID", "LITERAL", "*")


class Refused(Exception):
    """CLUSTER_AUTHORIZATION_FAILED, from whichever library."""


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def refused_by_create(self, *rules: Rule) -> list[str]:
        """Create these rules, and return the errors of those that were refused."""
        answer = self._admin.create_acls([self._acl(rule) for rule in rules])
        return [str(failed) for failed in answer["failed"]]

    def describe(self, principal: str | None = None) -> set[Rule]:
        try:
            found, _ = self._admin.describe_acls(self._filter(principal))
        except kafka.errors.ClusterAuthorizationFailedError as error:
            raise Refused from error
        return {self._rule(acl) for acl in found}

    def delete(self, *principals: str) -> list[set[Rule]]:
        answers = self._admin.delete_acls([self._filter(principal) for principal in principals])
        for _, _, error in answers:
            self._check(error)
        return [{self._rule(acl) for acl in found} for _, found, _ in answers]

    @staticmethod
    def _check(error: type[Exception]) -> None:
        if error is kafka.errors.ClusterAuthorizationFailedError:
            raise Refused
        assert error is kafka.errors.NoError

    @staticmethod
    def _acl(rule: Rule) -> ACL:
        permission, principal, host, operation, kind, pattern, name = rule
        resource = ResourcePattern(KafkaResourceType[kind], name, ACLResourcePatternType[pattern])
        return ACL(principal, host, ACLOperation[operation], ACLPermissionType[permission], resource)

    @staticmethod
    def _filter(principal: str | None) -> ACLFilter:
        everything = ResourcePatternFilter(KafkaResourceType.ANY, None, ACLResourcePatternType.ANY)
        return ACLFilter(principal, None, ACLOperation.ANY, ACLPermissionType.ANY, everything)

    @staticmethod
    def _rule(acl: ACL) -> Rule:
        of = acl.resource_pattern
        names = (acl.operation.name, of.resource_type.name, of.pattern_type.name, of.resource_name)
        return acl.permission_type.name, acl.principal, acl.host, *names


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def close(self) -> None:
        pass

    def refused_by_create(self, *rules: Rule) -> list[str]:
        """Create these rules, and return the errors of those that were refused."""
        futures = self._admin.create_acls([self._binding(rule) for rule in rules])
        return [str(error) for future in futures.values() if (error := future.exception(20))]

    def describe(self, principal: str | None = None) -> set[Rule]:
        return {self._rule(found) for found in self._admin.describe_acls(self._filter(principal)).result(20)}

    def delete(self, *principals: str) -> list[set[Rule]]:
        filters = [self._filter(principal) for principal in principals]
        futures = self._admin.delete_acls(filters)
        try:
            return [{self._rule(found) for found in futures[each].result(20)} for each in filters]
        except KafkaException as error:
            if error.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                raise Refused from error
            raise

    @staticmethod
    def _binding(rule: Rule) -> AclBinding:
        permission, principal, host, operation, kind, pattern, name = rule
        where = ResourceType["BROKER" if kind == "CLUSTER" else kind], name, ResourcePatternType[pattern]
        return AclBinding(*where, principal, host, AclOperation[operation], AclPermissionType[permission])

    @staticmethod
    def _filter(principal: str | None) -> AclBindingFilter:
        everything = ResourceType.ANY, None, ResourcePatternType.ANY
        return AclBindingFilter(*everything, principal, None, AclOperation.ANY, AclPermissionType.ANY)

    @staticmethod
    def _rule(found: AclBinding) -> Rule:
        names = (found.operation.name, found.restype.name, found.resource_pattern_type.name, found.name)
        return found.permission_type.name, found.principal, found.host, *names


CLIENTS = pytest.mark.parametrize("connect", [KafkaPython, Librdkafka])


@pytest.fixture
def guarded(tmp_path: Any) -> Iterator[BrokerProcess]:
    with broker_process(str(tmp_path / "data"), *ON, *SUPER) as broker:
        yield broker


@CLIENTS
def test_acls_created_by_other_clients_survive_a_restart_and_kill_9(
    guarded: BrokerProcess, connect: Callable[[str], Any]
) -> None:
    with closing(connect(guarded.bootstrap)) as admin:
        assert admin.describe() == set()
        assert admin.refused_by_create(READ, DENY) == []
        assert admin.refused_by_create(WRITE, READ) == []
        assert admin.describe() == {READ, DENY, WRITE}
        assert admin.describe("User:*") == {DENY}
        assert admin.delete("User:bob", "User:nobody") == [{WRITE}, set()]
    guarded.kill()
    guarded.start()
    with closing(connect(guarded.bootstrap)) as admin:
        assert admin.describe() == {READ, DENY}
        assert admin.delete("User:alice") == [{READ}]
    assert guarded.stop() == 0
    guarded.start()
    with closing(connect(guarded.bootstrap)) as admin:
        assert admin.describe() == {DENY}


@CLIENTS
def test_changing_acls_without_the_right_is_refused(tmp_path: Any, connect: Callable[[str], Any]) -> None:
    """Describing is refused too, but confluent-kafka 2.16 drops the error of DescribeAcls."""
    options = (*ON, "-X", "super.users=User:admin")
    with broker_process(str(tmp_path / "data"), *options) as broker, closing(connect(broker.bootstrap)) as admin:
        assert len(admin.refused_by_create(READ, DENY)) == 2
        with pytest.raises(Refused):
            admin.delete("User:alice")
        if connect is KafkaPython:
            with pytest.raises(Refused):
                admin.describe()


@CLIENTS
def test_of_several_acls_in_one_request_only_the_invalid_one_is_refused(
    guarded: BrokerProcess, connect: Callable[[str], Any]
) -> None:
    wrong: Rule = ("ALLOW", "User:alice", "*", "READ", "CLUSTER", "LITERAL", "orders")
    with closing(connect(guarded.bootstrap)) as admin:
        assert len(admin.refused_by_create(READ, wrong, DENY)) == 1
        assert admin.describe() == {READ, DENY}
