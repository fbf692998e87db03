"""A topic for one window, of a load that may fill gigabytes."""

import contextlib
from collections.abc import Iterator

from .. import topics
from ..peers import disk
from ..peers.peers import Peer


@contextlib.contextmanager
def own_topic(peer: Peer, partitions: int) -> Iterator[str]:
    """A new topic's name. Deleted afterwards, and what it took of the disk is free when the next window begins."""
    with topics.topic(peer.host, peer.port, None, partitions) as topic:
        yield topic
    disk.wait_until_freed(peer.directory, topic)
