"""A topic that exists for one window only, for loads that may write gigabytes."""

import contextlib
from collections.abc import Iterator

from .. import topics
from ..peers import disk
from ..peers.peers import Peer


@contextlib.contextmanager
def own_topic(peer: Peer, partitions: int) -> Iterator[str]:
    """Create a topic for the block and yield its name. It is deleted at the end, and the block returns when its disk
    space is free.
    """
    with topics.topic(peer.host, peer.port, None, partitions) as topic:
        yield topic
    disk.wait_until_freed(peer.directory, topic)
