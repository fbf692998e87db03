"""The connection fence: a request that comes over an older connection than one of its kind before is too late."""

from fencepost.broker.transactions.fence import HIGHEST_TV1_VERSION, Fence, Fences, Kind


def test_after_a_newer_connection_was_used_requests_over_an_older_one_are_refused():
    fence = Fence()
    assert fence.passes(Kind.COORDINATOR, 5)
    assert fence.passes(Kind.COORDINATOR, 5)
    assert fence.passes(Kind.COORDINATOR, 8)
    assert not fence.passes(Kind.COORDINATOR, 5)
    assert fence.passes(Kind.COORDINATOR, 8)


def test_a_fence_compares_connections_only_between_requests_of_the_same_kind():
    """Kinds are requests to the coordinator, data requests and group requests, because a client has a connection for
    each.
    """
    fence = Fence()
    assert fence.passes(Kind.COORDINATOR, 9)
    assert fence.passes(Kind.DATA, 3)
    assert fence.passes(Kind.GROUP, 1)
    assert not fence.passes(Kind.DATA, 2)


def test_a_new_producer_epoch_accepts_any_connection_first():
    """The new producer may have had its older connection open all along."""
    fences = Fences()
    assert fences.of("id", 7, 0).passes(Kind.COORDINATOR, 9)
    assert fences.of("id", 7, 1).passes(Kind.COORDINATOR, 4)
    assert fences.of("id", 8, 0).passes(Kind.COORDINATOR, 2)
    assert not fences.of("id", 8, 0).passes(Kind.COORDINATOR, 1)


def test_only_the_fence_of_the_newest_epoch_is_kept_for_each_id():
    fences = Fences()
    for epoch in range(100):
        fences.of("id", 7, epoch).passes(Kind.DATA, epoch)
    fences.of("other", 8, 0)
    assert len(fences) == 2
    fences.forget("id")
    fences.forget("id")
    assert len(fences) == 1


def test_the_fence_covers_six_apis_in_versions_that_tv2_clients_do_not_send():
    """A request is fenced up to HIGHEST_TV1_VERSION of its API; the numbers are the first versions of TV2 clients."""
    produce, init, add_partitions, add_offsets, end, txn_offset_commit = 0, 22, 24, 25, 26, 28
    assert HIGHEST_TV1_VERSION[produce] < 12
    assert HIGHEST_TV1_VERSION[end] < 5
    assert HIGHEST_TV1_VERSION[txn_offset_commit] < 5
    assert HIGHEST_TV1_VERSION[init] < 5
    # TV2 clients send neither of the two requests that add something to a transaction, so these have no bound here.
    assert set(HIGHEST_TV1_VERSION) == {produce, init, add_partitions, add_offsets, end, txn_offset_commit}
