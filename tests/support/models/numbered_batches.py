"""Batches that are only numbered, and a lane that they are taken into."""

from fencepost.client.producer.sequences import Lane, Numbered, Sequences
from fencepost.client.values import ProducerIdentity


class Sent(Numbered):
    def __init__(self, count=1, name=0):
        super().__init__(count)
        self.name = name


def producer(*, is_known=True, **more):
    sequences, lane = Sequences(**more), Lane()
    sequences.begin(ProducerIdentity(7, 0))
    if is_known:  # as it is once the broker has acknowledged a batch
        lane.begin(sequences.identity)
        lane.is_known = True
    return sequences, lane


def send(sequences, lane, *batches):
    for batch in batches:
        assert sequences.may_take_new(lane)
        sequences.take(lane, batch)
        batch.leave()
