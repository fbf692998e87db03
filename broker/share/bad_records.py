"""Records that nobody manages to work on: they are to take no others with them. Pure.

The rule: from half of the delivery limit on, what fails together comes in ever smaller pieces and with nothing else,
and for the last time each record alone. So only the record that is bad is archived at the limit.
Source: KAFKA-17541, Kafka's SharePartition.throttleRecordsDeliveryLimit and acquireSubsetBatchRecords.
"""

FEWEST_DELIVERIES = 2  # before anybody suspects a record


def suspected_from(limit: int) -> int:
    """After how many deliveries a record comes only with others like it."""
    return max(FEWEST_DELIVERIES, (limit + 1) // 2)


def most_at_once(deliveries: int, limit: int, size: int) -> int | None:
    """How many of a run of `size` records, given out so often already, may come at once, and with nothing else.

    None: there is nothing against them.
    """
    from_deliveries = suspected_from(limit)
    if limit > FEWEST_DELIVERIES and deliveries >= limit - 1:
        return 1
    if deliveries < from_deliveries:
        return None
    return max(1, size >> (deliveries - from_deliveries + 1))
