"""Admin's calls about quotas, against a broker."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from fencepost.client.admin.admin import Admin
from fencepost.client.admin.values import ANY_ENTITY, DEFAULT_ENTITY, QuotaEntity
from fencepost.client.errors import ClientError, InvalidConfigurationError, KafkaError
from fencepost.client.sync.admin import Admin as BlockingAdmin
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.quotas import AlterClientQuotasResponse, DescribeClientQuotasResponse
from odd_answers import answered
from served_broker import ServedBroker
from txn_world import BOOTSTRAP, within

ALICE, APP = QuotaEntity(user="alice"), QuotaEntity(client_id="app")
BOTH, OTHERS = QuotaEntity(user="alice", client_id="app"), QuotaEntity(user="alice", client_id=DEFAULT_ENTITY)
ADDRESS = QuotaEntity(ip="10.0.0.1")


@pytest.fixture(scope="module")
def broker() -> Iterator[ServedBroker]:
    with ServedBroker() as served:
        yield served


@pytest_asyncio.fixture
async def admin(broker: ServedBroker) -> AsyncIterator[Admin]:
    async with Admin(f"127.0.0.1:{broker.port}") as opened:
        yield opened


async def test_admin_sets_quotas_describes_them_by_a_filter_and_removes_them(admin: Admin) -> None:
    for entity in (ALICE, APP, BOTH, OTHERS):
        await admin.alter_client_quotas(entity, set={"producer_byte_rate": 1000, "request_percentage": 12.5})
    await admin.alter_client_quotas(ADDRESS, set={"connection_creation_rate": 5})
    found = await admin.describe_client_quotas()
    assert found.keys() == {ALICE, APP, BOTH, OTHERS, ADDRESS}
    assert list(found[ALICE].items()) == [("producer_byte_rate", 1000.0), ("request_percentage", 12.5)]
    for wanted, strict, expected in [
        (ALICE, False, {ALICE, BOTH, OTHERS}),
        (ALICE, True, {ALICE}),
        (QuotaEntity(client_id="app"), False, {APP, BOTH}),
        (QuotaEntity(user="alice", client_id=DEFAULT_ENTITY), False, {OTHERS}),
        (QuotaEntity(user=ANY_ENTITY, client_id=ANY_ENTITY), False, {BOTH, OTHERS}),
        (QuotaEntity(ip=ANY_ENTITY), False, {ADDRESS}),
        (QuotaEntity(user="bob"), False, set()),
    ]:
        assert (await admin.describe_client_quotas(wanted, strict=strict)).keys() == expected
    await admin.alter_client_quotas(ALICE, set={"consumer_byte_rate": 7}, delete=["request_percentage", "no_such"])
    await admin.alter_client_quotas(ALICE, delete=["producer_byte_rate"], validate_only=True)
    found = await admin.describe_client_quotas(ALICE, strict=True)
    assert found == {ALICE: {"consumer_byte_rate": 7.0, "producer_byte_rate": 1000.0}}
    await admin.alter_client_quotas(ADDRESS, delete=["connection_creation_rate"])
    for entity in (ALICE, APP, BOTH, OTHERS):
        await admin.alter_client_quotas(
            entity, delete=["producer_byte_rate", "consumer_byte_rate", "request_percentage"]
        )
    assert await admin.describe_client_quotas() == {}


async def test_a_refused_quota_names_the_entity_in_the_error(admin: Admin) -> None:
    with pytest.raises(KafkaError, match="user alice, client id <default>: producer_byte_rate") as refused:
        await admin.alter_client_quotas(OTHERS, set={"producer_byte_rate": 0})
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError, match="ip 10"):
        await admin.alter_client_quotas(ADDRESS, set={"producer_byte_rate": 1})
    with pytest.raises(KafkaError, match="an address goes with no user or client id"):
        await admin.describe_client_quotas(QuotaEntity(user="alice", ip="10.0.0.1"))


@pytest.mark.parametrize("nobody", [QuotaEntity(), QuotaEntity(user=ANY_ENTITY), QuotaEntity("alice", ANY_ENTITY)])
async def test_setting_quotas_without_an_entity_raises_before_a_request_is_sent(
    admin: Admin, nobody: QuotaEntity
) -> None:
    with pytest.raises(InvalidConfigurationError):
        await admin.alter_client_quotas(nobody, set={"producer_byte_rate": 1})


def test_the_blocking_admin_sets_and_describes_quotas(broker: ServedBroker) -> None:
    with BlockingAdmin(f"127.0.0.1:{broker.port}") as admin:
        admin.alter_client_quotas(APP, set={"producer_byte_rate": 5})
        assert admin.describe_client_quotas() == {APP: {"producer_byte_rate": 5.0}}
        admin.alter_client_quotas(APP, delete=["producer_byte_rate"])


def test_a_quota_answer_without_an_entry_for_the_altered_entity_raises() -> None:
    """In a description, the part of an entity that is of an unknown type is left out, and a quota of an unknown name is
    returned.
    """
    part, value = DescribeClientQuotasResponse.Entry.Entity, DescribeClientQuotasResponse.Entry.Value
    newer = DescribeClientQuotasResponse.Entry(
        entity=[part(entity_type="team", entity_name="blue"), part(entity_type="user", entity_name="alice")],
        values=[value(key="new_rate", value=1.5)],
    )

    async def main(world):  # type: ignore[no-untyped-def]
        async with Admin(BOOTSTRAP, environment=world.world.environment) as admin:
            world.intercept(answered("AlterClientQuotas", lambda request: AlterClientQuotasResponse(entries=[])))
            with pytest.raises(ClientError, match="user alice"):
                await admin.alter_client_quotas(ALICE, set={"producer_byte_rate": 1})
            world.intercept(
                answered("DescribeClientQuotas", lambda request: DescribeClientQuotasResponse(entries=[newer]))
            )
            assert await admin.describe_client_quotas() == {ALICE: {"new_rate": 1.5}}

    within(main)
