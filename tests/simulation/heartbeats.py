"""Heartbeats of members whose broker assigns (KIP-848), written down as operations: the SDK's, and scripted ones."""

from typing import Any

from fencepost.client.transactions.requests import maybe_done
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from simulation.history import Beat, Given, Op, Place
from simulation.world import NEWER_SESSION_MS, World

import fencepost as fp


def beat_of(world: World, request: ConsumerGroupHeartbeatRequest) -> Beat:
    owned = None if request.topic_partitions is None else _places(world, request.topic_partitions)
    return Beat(request.group_id, request.member_id, request.member_epoch, owned, NEWER_SESSION_MS)


def note_answer(world: World, op: Op, answer: Any) -> None:
    if answer.error_code:
        op.fail(answer.error_code)
        return
    places = None if answer.assignment is None else _places(world, answer.assignment.topic_partitions)
    op.ok(Given(answer.member_epoch, places))


def _places(world: World, listed: Any) -> tuple[Place, ...]:
    names = world.topic_names
    return tuple(sorted((names[each.topic_id], number) for each in listed for number in each.partitions))


def watch_heartbeats(client: Any, consumer: Any) -> None:
    """Note in the history all heartbeats that a consumer of the SDK sends, also when it leaves."""
    cluster = consumer._cluster
    ask = cluster.ask

    async def watched(target: Any, request: Any, **more: Any) -> Any:
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return await ask(target, request, **more)
        op = client.history.invoke(client.name, beat_of(client.world, request))
        try:
            answer = await ask(target, request, **more)
        except fp.KafkaError as error:
            if not maybe_done(error):
                op.fail(-1)
            raise
        note_answer(client.world, op, answer)
        return answer

    cluster.ask = watched
