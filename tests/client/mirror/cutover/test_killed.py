"""A cutover between two brokers that is killed before or after any of its requests is finished by the next."""

import asyncio

import pytest
from fencepost.client.admin.values import NewTopic
from fencepost.client.mirror.cutover.looking import SETTING, Looking
from fencepost.client.mirror.cutover.running import Sides, cut_over
from fencepost.client.mirror.cutover.sides import AdminSides
from fencepost.client.producer.producer import Producer
from fencepost.client.values import TopicPartition
from long_runs import first_only
from plain_mirror import mirror_all, values_from
from two_clusters import two_clusters

pytestmark = pytest.mark.slow
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
CALLS = [name for name in vars(Sides) if not name.startswith("_") and name not in ("allow_writes", "put_back")]
PLACES = [("commit", True), ("drain", True), ("commit", False)]
PLACES += [place for name in CALLS for is_done in (True, False) if (place := (name, is_done)) not in PLACES]


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


def killed_at(sides, name, *, is_done):
    """Have the sides die in the first call of this method, before it does anything or once it has done it.

    commit: in the call of write() that has the offsets of the groups.
    """
    method = "write" if name == "commit" else name
    original = getattr(sides, method)

    async def call(*arguments):
        is_it = name != "commit" or bool(arguments[1])
        found = await original(*arguments) if is_done or not is_it else None
        if is_it:
            raise Killed(name)
        return found

    setattr(sides, method, call)
    return sides


@pytest.mark.parametrize(("name", "is_done"), first_only(PLACES, 2))
async def test_a_cutover_killed_between_real_brokers_is_finished_by_the_next_cutover(monkeypatch, name, is_done):
    monkeypatch.setattr("fencepost.client.mirror.cutover.sides.QUIET_S", 0.01)
    async with two_clusters() as to:
        await to.source.create_topics([NewTopic("a", 2)])
        async with Producer(to.source_at, transactional_id="filler") as producer:
            for value in (b"one", b"two", b"three"):
                async with producer.transaction() as transaction:
                    await transaction.send("a", value, partition=0)
        await to.source.alter_group_offsets("g", {A0: 2, A1: 0})
        await to.source.alter_group_offsets("h", {A0: 3})
        await mirror_all(to, "a")

        def sides():
            return AdminSides(
                Looking(to.source, to.target, "default", ".*"),
                lambda name: Producer(to.target_at, transactional_id=name),
                wait_s=5,
            )

        dead = killed_at(sides(), name, is_done=is_done)
        with pytest.raises(Killed):
            await cut_over(dead, lambda line: None)
        again = sides()
        done = await cut_over(again, lambda line: None)
        await asyncio.gather(dead.close(), again.close(), return_exceptions=True)
        assert done.state == "done"
        for group, expected in {"g": [b"two", b"three"], "h": [b"three"]}.items():
            moved = await to.target.list_group_offsets(group)
            assert await values_from(to.target, A0, moved[A0].offset) == expected
        configs = (await to.source.describe_configs(topics="a"))["a"]
        assert next(each.value for each in configs if each.name == SETTING) == "true"
