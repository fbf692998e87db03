"""Who uses the source of a mirror: writers of records with all that a record may have, groups, and who deletes.

What the scripted clients of other simulations write has values alone. Records of `goods` have keys, headers and times
of their own as well, nothing in their place now and then, and come in batches of each kind of compression.
"""

import asyncio
from typing import Any

from fencepost.client.admin.admin import Admin
from fencepost.client.mirror.names import group_id
from fencepost.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from simulation.mirror_logs import log_of
from simulation.mirror_rules import SOURCE
from simulation.mirror_tasks import MIRROR
from simulation.mirrored_world import MirroredWorld
from simulation.sdk_clients import PATIENT, LosesEnds, Mistake, SdkClient
from simulation.world import TXN_TIMEOUT_MS

import fencepost as fp

TOPICS = {"orders": 2, "goods": 2}
TXN_GROUP, PLAIN_GROUPS = "group-txn", ("group-a", "group-b")
EARLY_MS = 1_600_000_000_000
COMMITS = 0.7


class GoodsWriter(LosesEnds):
    """Writes to both partitions, in transactions if it has an id. Another writer with the same id makes it a zombie."""

    world: MirroredWorld

    def __init__(self, world: MirroredWorld, known_as: str, number: int, *, plain: bool = False) -> None:
        super().__init__(world, f"{known_as}#{number}", world.goods)
        self._id = None if plain else known_as

    async def live(self) -> None:
        kinds = {"compression_type": self.rng.choice((None, None, "gzip")), "linger_ms": self.rng.choice((0, 0, 5))}
        if self._id is not None:
            kinds |= {"transactional_id": self._id, "transaction_timeout_ms": TXN_TIMEOUT_MS}
        producer = await self.started(
            fp.Producer, delivery_timeout_ms=self.rng.choice((2_000, 8_000)), max_block_ms=5_000, **kinds
        )
        while not self.world.over:
            if self._id is None:
                await self._ignoring_refusals(self._some(producer))
                await producer.flush()
            else:
                await self._transaction(producer)
            await asyncio.sleep(self.rng.choice((0, 0.05, 0.3, 1.0)))

    async def _transaction(self, producer: Any) -> None:
        try:
            async with producer.transaction() as tx:
                for _ in range(self.rng.choice((1, 1, 2, 4))):
                    for delivery in await self._some(tx):
                        await delivery
                    await asyncio.sleep(self.rng.choice((0, 0, 0.02, 0.3, 2.0)))
                if self.rng.random() < 0.3 and not self.world.is_moving:
                    tp = TopicPartition(*self.rng.choice(self.world.places))
                    offsets = {tp: OffsetAndMetadata(self.rng.randint(0, 30), self.name)}
                    await tx.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(TXN_GROUP))
                if self.rng.random() > COMMITS:
                    raise Mistake
        except (Mistake, fp.AbortableTransactionError):
            return
        except fp.CommitOutcomeUnknownError:
            await producer.init_transactions()

    async def _ignoring_refusals(self, sending: Any) -> None:
        try:
            for delivery in await sending:
                await delivery
        except fp.KafkaError:
            await asyncio.sleep(0.2)

    async def _some(self, sender: Any) -> list[Any]:
        """Send a few records to one partition. Returns their deliveries, still to be awaited."""
        rng = self.rng
        place = rng.choice(self.places)
        sent = []
        for _ in range(rng.choice((1, 2, 5))):
            self._numbers += 1
            headers = [("id", f"{self.name}:{self._numbers}".encode()), *rng.sample(HEADERS, rng.randint(0, 2))]
            value = rng.choice((None, b"", b"v", b"long" * 700, f"{self._numbers}".encode()))
            sent.append(
                await sender.send(
                    place[0],
                    value,
                    key=rng.choice((None, b"", b"k%d" % rng.randint(0, 5))),
                    partition=place[1],
                    timestamp_ms=rng.choice((None, 0, EARLY_MS + rng.randint(0, 1 << 36))),
                    headers=headers,
                )
            )
        return sent


HEADERS: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None), ("b", b""), ("", b"x"), ("id", b"twice")]


class SdkAdmin(SdkClient):
    """A process with an Admin of each side."""

    world: MirroredWorld
    vanishing = 0.0

    async def live(self) -> None:
        self.admins = [
            Admin(side.bootstrap, client_id=self.name, environment=self._environment, **PATIENT)
            for side in self.world.sides.values()
        ]
        self.clients += self.admins
        for admin in self.admins:
            while True:
                try:
                    await admin.start()
                    break
                except fp.KafkaError:
                    await asyncio.sleep(0.1)
        await self.work()

    async def work(self) -> None:
        """Run `turn` again and again, once it is connected, until the world is over."""
        while not self.world.over:
            try:
                await self.turn()
            except fp.KafkaError:
                pass
            await asyncio.sleep(self.rng.choice((0.1, 0.5, 2.0)))

    async def turn(self) -> None:
        """Do one thing. Subclasses say what."""


class Committer(SdkAdmin):
    """Commits offsets of groups without members: anywhere, also in gaps, at the end, and back again."""

    def __init__(self, world: MirroredWorld) -> None:
        super().__init__(world, "committer", ())

    async def turn(self) -> None:
        source, group = self.admins[0], self.rng.choice(PLAIN_GROUPS)
        tp = TopicPartition(*self.rng.choice(self.world.places))
        end = (await source.ends([tp], -1))[tp]
        at = self.rng.choice((end, self.rng.randint(0, end)))
        if not self.world.is_moving:
            await source.alter_group_offsets(group, {tp: at})


class MirroredTrimmer(SdkAdmin):
    """Deletes from the beginning of the source's partitions what is mirrored, once that is written down."""

    def __init__(self, world: MirroredWorld) -> None:
        super().__init__(world, "trimmer", world.goods)

    async def turn(self) -> None:
        source, target = self.admins
        await asyncio.sleep(self.rng.uniform(0.5, 3.0))
        place = self.rng.choice(self.places)
        tp = TopicPartition(*place)
        positions = await target.list_group_offsets(group_id(MIRROR), require_stable=True)
        if tp not in positions:
            return
        start = (await source.ends([tp], -2))[tp]
        at = self.rng.randint(0, positions[tp].offset)
        if at > start and await log_of(self.world, SOURCE, place):
            await source.delete_records({tp: at})


class Grower(SdkAdmin):
    """Gives a topic of the source one more partition."""

    def __init__(self, world: MirroredWorld, seconds: float) -> None:
        super().__init__(world, "grower", ())
        self._begins_s = self.rng.uniform(0.0, 0.8) * seconds

    async def work(self) -> None:
        await asyncio.sleep(self._begins_s)
        source, tp = self.admins[0], TopicPartition("goods", len(self.world.goods))
        while tuple(tp) not in self.world.goods:
            try:
                if tp in (await source.describe_topics(["goods"]))["goods"].topic_partitions:
                    self.world.goods.append((tp.topic, tp.partition))
                else:
                    await source.create_partitions({"goods": tp.partition + 1})
            except fp.KafkaError:
                await asyncio.sleep(0.1)
