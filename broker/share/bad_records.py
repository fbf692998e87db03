"""Limits how many records are delivered together after failed deliveries, so that a bad record does not spoil good
ones. Pure.

The rule: once records have been delivered half as often as allowed, those that failed together are delivered in ever
smaller groups and without others, and for the last time each record alone. So only the bad record is archived when the
delivery limit is reached.

Source: KAFKA-17541, Kafka's SharePartition.throttleRecordsDeliveryLimit and acquireSubsetBatchRecords.
"""

FEWEST_DELIVERIES = 2  # a record that was delivered less often is never suspected


def suspected_from(limit: int) -> int:
    """Return the number of deliveries from which on a record is delivered only together with others of its run
    (consecutive records in the same state), and with fewer of them each time.

    limit: how often a record of the group is delivered at most.
    """
    return max(FEWEST_DELIVERIES, (limit + 1) // 2)


def max_together(deliveries: int, limit: int, size: int) -> int | None:
    """Return how many records of a run may be delivered together, and without any others; None if there is no limit.

    deliveries: how often they were delivered. limit: how often a record is delivered at most. size: how many records
    the run has.
    """
    from_deliveries = suspected_from(limit)
    if limit > FEWEST_DELIVERIES and deliveries >= limit - 1:
        return 1
    if deliveries < from_deliveries:
        return None
    return max(1, size >> (deliveries - from_deliveries + 1))
