"""Batches that are only numbered, and the entry of the partition that takes them."""

from fencepost.client.producer.sequences import Numbered, PartitionEntry, Sequences
from fencepost.client.values import ProducerIdentity


class Sent(Numbered):
    def __init__(self, count=1, name=0):
        super().__init__(count)
        self.name = name


def producer(*, is_known=True, **more):
    sequences, entry = Sequences(**more), PartitionEntry()
    sequences.begin(ProducerIdentity(7, 0))
    if is_known:  # as it is once the broker has acknowledged a batch
        entry.begin(sequences.identity)
        entry.is_known = True
    return sequences, entry


def send(sequences, entry, *batches):
    for batch in batches:
        assert sequences.may_take_new(entry)
        sequences.take(entry, batch)
        batch.leave()
