"""A cutover between two brokers: groups go on at exactly the next record, or all is as it was."""

import asyncio

import pytest
from acl_client import STANDARD_AUTHORIZER
from fencepost.client.admin.values import NewTopic
from fencepost.client.consumer.consumer import Consumer
from fencepost.client.errors import KafkaError, ProducerFencedError
from fencepost.client.mirror.cutover.looking import SETTING, Looking, denial_of
from fencepost.client.mirror.cutover.record import PRODUCER_CONFIG
from fencepost.client.mirror.cutover.running import CutoverFailed, cut_over
from fencepost.client.mirror.cutover.sides import AdminSides
from fencepost.client.producer.producer import Producer
from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from fencepost.protocol.errors import ErrorCode
from plain_mirror import mirror_all, values_from
from two_clusters import two_clusters

pytestmark = pytest.mark.slow
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.fixture
async def to(monkeypatch):
    monkeypatch.setattr("fencepost.client.mirror.cutover.sides.QUIET_S", 0.02)
    async with two_clusters() as clusters:
        await clusters.source.create_topics([NewTopic("a", 2), NewTopic("b", 1)])
        yield clusters


async def fill(to):
    """Write three records to a-0, with an aborted one and markers between, one to a-1, and none to b."""
    async with Producer(to.source_at, transactional_id="filler") as producer:
        async with producer.transaction() as transaction:
            await transaction.send("a", b"one", partition=0)
            await transaction.send("a", b"other", partition=1)
        await producer.begin_transaction()
        await producer.send("a", b"aborted", partition=0)
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await transaction.send("a", b"two", partition=0)
            await transaction.send("a", b"three", partition=0)


async def cut(to, groups=".*", *, mirror=True, wait_s=1.0):
    """Run a cutover while a mirror copies (mirror: False for none). Returns the lines of text that it told."""
    told = []
    sides = AdminSides(
        Looking(to.source, to.target, "default", groups),
        lambda name: Producer.from_config(
            {"bootstrap.servers": to.target_at, "transactional.id": name, **PRODUCER_CONFIG}
        ),
        wait_s=wait_s,
    )

    async def copy():
        while mirror:
            await mirror_all(to, "a", "b")
            await asyncio.sleep(0.05)

    copying = asyncio.create_task(copy())
    try:
        await cut_over(sides, told.append)
    finally:
        copying.cancel()
        await asyncio.gather(copying, return_exceptions=True)
        await sides.close()
    return told


async def refuses(to, topic):
    found = (await to.source.describe_configs(topics=topic))[topic]
    return next(each.value for each in found if each.name == SETTING) == "true"


async def test_a_group_at_any_offset_reads_the_same_records_after_its_cutover(to):
    await fill(to)
    ends = await to.source.ends([A0, A1, B0], -1)
    for offset in range(ends[A0] + 1):
        await to.source.alter_group_offsets(f"g{offset}", {A0: OffsetAndMetadata(offset, f"at {offset}"), B0: 0})
    await mirror_all(to, "a", "b")
    await cut(to)
    for offset in range(ends[A0] + 1):
        moved = await to.target.list_group_offsets(f"g{offset}")
        assert moved[A0].metadata == f"at {offset}"
        assert await values_from(to.target, A0, moved[A0].offset) == await values_from(to.source, A0, offset)
    target_end = (await to.target.ends([A0], -1))[A0]
    assert moved == {A0: OffsetAndMetadata(target_end, f"at {ends[A0]}"), B0: OffsetAndMetadata(0)}
    assert [await refuses(to, name) for name in ("a", "b")] == [True, True]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_consumers_of_a_moved_group_read_exactly_the_next_record(to, protocol):
    await fill(to)
    async with Consumer(to.source_at, group_id="g", topics=["a"], group_protocol=protocol, auto_offset_reset="earliest",
                        enable_auto_commit=False) as consumer:  # fmt: skip
        seen = []
        while len(seen) < 2:
            seen += [await consumer.getone()]
        await consumer.commit()
    await mirror_all(to, "a", "b")
    await cut(to, "g")
    reading = {"group_id": "g", "topics": ["a"], "group_protocol": protocol}
    async with Consumer(to.target_at, **reading, auto_offset_reset="none") as consumer:
        rest = [await consumer.getone(timeout_ms=10_000) for _ in range(2)]
    assert sorted(each.value for each in [*seen, *rest]) == [b"one", b"other", b"three", b"two"]


async def test_a_cutover_aborts_open_transactions_and_their_producers_are_refused(to):
    """Every later write to the source is refused, too."""
    await fill(to)
    await to.source.alter_group_offsets("g", {A0: 1})
    await mirror_all(to, "a", "b")
    async with Producer(to.source_at, transactional_id="copier") as producer:
        await producer.begin_transaction()
        await producer.send("a", b"open", partition=0)
        await producer.flush()
        told = await cut(to)
        assert "aborted: copier" in told
        with pytest.raises(ProducerFencedError):  # its transaction is aborted
            await producer.commit_transaction()
    async with Producer(to.source_at, transactional_id="copier") as again:
        with pytest.raises(KafkaError) as refused:
            async with again.transaction() as transaction:
                await transaction.send_and_wait("a", b"late", partition=0)
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
    async with Producer(to.source_at) as plain:
        with pytest.raises(KafkaError, match=SETTING.replace(".", r"\.")):
            await plain.send_and_wait("a", b"late", partition=0)
    assert await values_from(to.target, A0, 0) == [b"one", b"two", b"three"]


async def test_a_cutover_aborts_a_transaction_with_pending_offsets_of_a_group(to):
    await fill(to)
    await to.source.alter_group_offsets("g", {A0: 1})
    await mirror_all(to, "a", "b")
    async with Producer(to.source_at, transactional_id="copier") as producer:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({A0: OffsetAndMetadata(4)}, ConsumerGroupMetadata("g"))
        await cut(to)
        with pytest.raises(ProducerFencedError):  # its transaction is aborted
            await producer.commit_transaction()
    moved = (await to.target.list_group_offsets("g"))[A0].offset
    assert await values_from(to.target, A0, moved) == [b"two", b"three"]


async def test_a_cutover_of_a_group_with_members_names_them_and_changes_nothing(to):
    await fill(to)
    await mirror_all(to, "a", "b")
    await to.source.alter_group_offsets("other", {A0: 1})
    reading = {"group_id": "g", "topics": ["a"], "client_id": "reader"}
    async with Consumer(to.source_at, **reading, auto_offset_reset="earliest") as consumer:
        await consumer.getone()
        await consumer.commit()
        with pytest.raises(CutoverFailed, match="group g has members at the source: reader@"):
            await cut(to)
    assert not await refuses(to, "a")
    assert await to.target.list_group_offsets("other") == {}


async def test_a_cutover_is_undone_if_its_mirror_is_not_running(to):
    await fill(to)
    await mirror_all(to, "a", "b")
    await to.source.alter_group_offsets("g", {A0: 1})
    async with Producer(to.source_at) as producer:
        await producer.send_and_wait("a", b"four", partition=0)
    with pytest.raises(CutoverFailed, match="1 offsets behind in a-0"):
        await cut(to, mirror=False, wait_s=0.3)
    assert not await refuses(to, "a")
    assert await to.target.list_group_offsets("g") == {}
    await cut(to)
    assert await values_from(to.target, A0, 0) == [b"one", b"two", b"three", b"four"]


async def test_a_cutover_fails_if_others_wrote_a_record_to_the_target(to):
    await fill(to)
    await mirror_all(to, "a", "b")
    await to.source.alter_group_offsets("g", {A0: 1})
    async with Producer(to.target_at) as producer:
        await producer.send_and_wait("a", b"foreign", partition=0)
    with pytest.raises(CutoverFailed, match="has written to a-0 at the target"):
        await cut(to)
    assert not await refuses(to, "a")


async def test_a_cutover_of_many_groups_moves_them_though_its_record_is_large(to):
    """Its record has the offset and the metadata of each group: more than a batch may have."""
    await fill(to)
    await mirror_all(to, "a", "b")
    groups = [f"g{number}" for number in range(300)]
    for name in groups:
        await to.source.alter_group_offsets(name, {A0: OffsetAndMetadata(1, "m" * 4000)})
    await cut(to)
    assert {(await to.target.list_group_offsets(name))[A0].metadata for name in groups} == {"m" * 4000}


async def test_a_cutover_whose_record_would_be_too_large_is_undone(to, monkeypatch):
    monkeypatch.setattr("fencepost.client.mirror.cutover.running.MAX_PACKED_BYTES", 20)
    await fill(to)
    await to.source.alter_group_offsets("g", {A0: 1})
    await mirror_all(to, "a", "b")
    with pytest.raises(CutoverFailed, match="bytes in one record") as failed:
        await cut(to)
    assert failed.value.now == "taken back"
    assert not await refuses(to, "a")


async def test_a_cutover_fails_if_a_topic_was_recreated(to):
    await fill(to)
    await mirror_all(to, "a", "b")
    await to.source.alter_group_offsets("g", {A0: 1})
    await to.source.delete_topics("b")
    await to.source.create_topics([NewTopic("b", 1)])
    with pytest.raises(CutoverFailed, match="stopped b-0: it was deleted and made again"):
        await cut(to, mirror=False)


async def test_a_cutover_fails_if_a_group_has_a_higher_offset_on_the_target(to):
    await fill(to)
    await to.source.alter_group_offsets("g", {A0: 1})
    await mirror_all(to, "a", "b")
    await to.target.alter_group_offsets("g", {A0: 3})
    with pytest.raises(CutoverFailed, match="has read there already"):
        await cut(to)
    assert not await refuses(to, "a")


async def test_with_acls_a_cutover_denies_writes_and_fails_if_a_super_user_still_wrote(to, monkeypatch):
    read_maps = AdminSides.read_maps

    async def write_first(self):
        found = await read_maps(self)
        async with (
            Producer(guarded.source_at, transactional_id="admin") as producer,
            producer.transaction() as transaction,
        ):
            await transaction.send_and_wait("a", b"by a super user", partition=1)
        return found

    monkeypatch.setattr(Looking, "barrier", by_rule)
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
    async with two_clusters(settings) as guarded:
        await guarded.source.create_topics([NewTopic("a", 2), NewTopic("b", 1)])
        await fill(guarded)
        await mirror_all(guarded, "a", "b")
        await guarded.source.alter_group_offsets("g", {A0: 1})
        with monkeypatch.context() as patched:
            patched.setattr(AdminSides, "read_maps", write_first)
            with pytest.raises(
                CutoverFailed, match="the transactional producer admin has written to a-1 at the source"
            ):
                await cut(guarded)
        assert await guarded.source.describe_acls() == []
        assert await guarded.target.list_group_offsets("g") == {}
        await cut(guarded)
        assert await guarded.source.describe_acls() == [denial_of("a"), denial_of("b")]
        moved = (await guarded.target.list_group_offsets("g"))[A0].offset
        assert await values_from(guarded.target, A0, moved) == [b"two", b"three"]


async def by_rule(self, topics):
    """Have the cutover refuse writes by ACLs, as on a Kafka other than fencepost."""
    return "rule"


async def test_a_cutover_whose_acl_would_lock_readers_out_fails_and_deletes_the_acl(to, monkeypatch):
    """A topic without any ACL is open to everyone; the cutover's own ACL, against writes, would be its first and end
    that.
    """
    monkeypatch.setattr(Looking, "barrier", by_rule)
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "allow_everyone_if_no_acl_found": True}
    async with two_clusters({**settings, "super_users": "User:admin"}) as open_:
        await open_.source.create_topics([NewTopic("a", 2), NewTopic("b", 1)])
        await fill(open_)
        await mirror_all(open_, "a", "b")
        await open_.source.alter_group_offsets("g", {A0: 1})
        with pytest.raises(CutoverFailed, match="nobody may read a, b at the source any more"):
            await cut(open_, mirror=False)
        assert await open_.source.describe_acls() == []
        assert len(await values_from(open_.source, A0, 0)) == 3
