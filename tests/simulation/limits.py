"""The limits of one seed's brokers, so low that its clients meet them, and what brokers forget because of that.

Forgetting is the one thing that excuses a duplicate, a gap or an id that is unknown, and no client is told of it. So
each time a broker forgets, that goes into the history, with all that judges it: whether it was called for, whether
others had been silent for longer, and whether a transaction was open.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from fencepost.broker.groups.consumer.coordinator import ConsumerGroups
from fencepost.broker.groups.coordinator import GroupCoordinator
from fencepost.broker.transactions.coordinator import TransactionCoordinator
from fencepost.broker.transactions.states import machine
from fencepost.protocol.errors import ErrorCode
from fencepost.storage.producers.producers import ProducerStates
from simulation.history import Forgotten, ForgottenGroup, History

LIMITED = 0.4  # share of the seeds that have a limit, for each kind of limit
EXPIRING = 0.3


@dataclass(frozen=True)
class Limits:
    """The limits of one seed; 0: the broker's default."""

    producer_ids: int = 0
    transactional_ids: int = 0
    group_bytes: int = 0
    producer_silence_ms: int = 0
    id_silence_ms: int = 0

    @classmethod
    def of(cls, seed: int) -> "Limits":
        rng = random.Random(f"{seed} limits")

        def perhaps(chance: float, *values: int) -> int:
            value = rng.choice(values)
            return value if rng.random() < chance else 0

        return cls(
            producer_ids=perhaps(LIMITED, 8, 20, 50),
            transactional_ids=perhaps(LIMITED, 8, 14, 25),
            group_bytes=perhaps(LIMITED, 1 << 20),
            producer_silence_ms=perhaps(EXPIRING, 500, 3_000),
            id_silence_ms=perhaps(EXPIRING, 500, 3_000),
        )

    @property
    def settings(self) -> dict[str, Any]:
        """The broker's settings for these limits."""
        asked = {
            "max_producer_ids": self.producer_ids,
            "max_transactional_ids": self.transactional_ids,
            "group_metadata_max_bytes": self.group_bytes,
            "producer_id_expiration_ms": self.producer_silence_ms,
            "transactional_id_expiration_ms": self.id_silence_ms,
        }
        often = {
            "producer_id_expiration_check_interval_ms": 300,
            "transaction_remove_expired_transaction_cleanup_interval_ms": 300,
        }
        return {name: value for name, value in asked.items() if value} | often


def met(history: History, errors: Mapping[int, int]) -> list[str]:
    """Return what limits did in a run, by name. errors: how often brokers answered each code."""
    reported = {(what.place is None, what.why) for _, what in history.of(Forgotten)}
    happened = {
        "producers evicted": (False, "limit") in reported,
        "ids evicted": (True, "limit") in reported,
        "producers expired": (False, "silence") in reported,
        "ids expired": (True, "silence") in reported,
        "producers or ids refused": errors.get(ErrorCode.POLICY_VIOLATION, 0) > 0,
        "members refused": errors.get(ErrorCode.GROUP_MAX_SIZE_REACHED, 0) > 0,
    }
    return [name for name, did in happened.items() if did]


@contextmanager
def forgetting_is_told(world: Any) -> Iterator[None]:
    """Within the block, note in this world's history what its brokers forget."""
    with ExitStack() as stack:

        def around(owner: Any, name: str, wrapper: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, wrapper(getattr(owner, name))))

        around(ProducerStates, "evict", lambda evict: _Producers(world, evict, "limit").call)
        around(ProducerStates, "expire", lambda expire: _Producers(world, expire, "silence").call)
        around(GroupCoordinator, "_forget", lambda forget: _groups(world, forget, "members"))
        around(ConsumerGroups, "forget", lambda forget: _groups(world, forget, "subscriptions"))
        around(TransactionCoordinator, "forget", lambda forget: _Ids(world, forget).call)
        yield


def _groups(world: Any, forget: Any, members: str) -> Any:
    """Return `forget` of a coordinator, which also notes a ForgottenGroup. members: the attribute in which a group of
    this kind has them.
    """

    def watched(coordinator: Any, group_id: str) -> None:
        group = coordinator.groups.get(group_id)
        if group is not None and not getattr(group, members):
            world.history.invoke("broker", ForgottenGroup(group_id)).ok()
        forget(coordinator, group_id)

    return watched


class _Producers:
    """Watches ProducerStates.evict or .expire, and notes which producers are forgotten."""

    def __init__(self, world: Any, forget: Any, why: str) -> None:
        self._world, self._forget, self._why = world, forget, why

    @property
    def call(self) -> Any:
        return lambda producers, *arguments: self._watched(producers, *arguments)

    def _watched(self, producers: Any, *arguments: Any) -> Any:
        known = {producer_id: (each.first_open, each.age_ms) for producer_id, each in producers._producers.items()}
        broker, here = next(
            (
                (broker, log)
                for broker in self._world.brokers
                for log in getattr(getattr(broker, "store", None), "logs", {}).values()
                if log.producers is producers
            ),
            (None, None),
        )
        if broker is None or here is None or not known:  # of a broker that was killed
            return self._forget(producers, *arguments)
        silent, remembered = self._others(broker, here) if self._why == "limit" else ([], 0)
        result = self._forget(producers, *arguments)
        settings, age_ms = broker.settings, broker.store.age_ms()
        for producer_id, (first_open, since_ms) in known.items():
            if producer_id in producers:
                continue
            if self._why == "limit":
                wrong = "nobody needs its place" if remembered < settings.max_producer_ids else ""
                wrong = wrong or ("others are silent for longer" if since_ms > min(silent, default=since_ms) else "")
            else:
                wrong = "it is not silent for long" if age_ms - since_ms < settings.producer_id_expiration_ms else ""
            wrong = "its transaction is open" if first_open >= 0 else wrong
            what = Forgotten((here.topic, here.partition), producer_id, None, self._why, wrong)
            self._world.history.invoke("broker", what).ok()
        return result

    def _others(self, broker: Any, here: Any) -> tuple[list[int], int]:
        """Return since when the longest silent producer of each log has been silent, and how many producers are
        remembered in all: both as far as the limit knows, which does not look at logs with unreleased records.
        """
        logs = list(broker.store.logs.values())
        looked_at = [log for log in logs if log.high_watermark == log.end_offset or log is here]
        silent = [log.producers.idle_since_ms for log in looked_at if log.producers.idle_since_ms is not None]
        counted = broker.producer_limit._counted if hasattr(broker, "producer_limit") else {}
        remembered = sum(
            len(log.producers) if log in looked_at else max(len(log.producers), counted.get(log.log_id, 0))
            for log in logs
        )
        return silent, remembered


class _Ids:
    """Watches TransactionCoordinator.forget, and notes which ids are forgotten."""

    def __init__(self, world: Any, forget: Any) -> None:
        self._world, self._forget = world, forget

    @property
    def call(self) -> Any:
        return lambda coordinator, ids: self._watched(coordinator, ids)

    def _watched(self, coordinator: Any, ids: Any) -> None:
        known = dict(coordinator.transactions)
        self._forget(coordinator, ids)
        its = (one for one in self._world.brokers if getattr(one, "transactions", None) is coordinator)
        if (broker := next(its, None)) is None:
            return
        settings, age_ms = broker.settings, broker.store.age_ms()
        for transactional_id in ids:
            txn = known.get(transactional_id)
            if txn is None or transactional_id in coordinator.transactions:
                continue
            full = len(known) >= settings.max_transactional_ids
            unused = machine.may_expire(txn, settings.transactional_id_expiration_ms, age_ms)
            wrong = "" if full or unused else "nobody needs its place"
            wrong = wrong if machine.is_unused(txn) else "its transaction is open"
            why = "silence" if unused else "limit"
            what = Forgotten(None, txn.producer_id, transactional_id, why, wrong)
            self._world.history.invoke("broker", what).ok()
