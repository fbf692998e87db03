"""Records that nobody manages to work on: they are to take no others with them. Pure.

The rule: from half of the delivery limit on, what fails together comes in ever smaller pieces and with nothing else,
and for the last time each record alone. So only the record that is bad is archived at the limit.
Source: KAFKA-17541, Kafka's SharePartition.throttleRecordsDeliveryLimit and acquireSubsetBatchRecords.
"""

FEWEST_DELIVERIES = 2  # before anybody suspects a record


def suspected_from(limit: int) -> int:
    """Return after how many deliveries a record is given out only with others like it."""
    return max(FEWEST_DELIVERIES, (limit + 1) // 2)


def most_at_once(deliveries: int, limit: int, size: int) -> int | None:
    """Return how many records of a run that was delivered this often may be given out together, and with no others.

    None: there is nothing against them.
    """
    from_deliveries = suspected_from(limit)
    if limit > FEWEST_DELIVERIES and deliveries >= limit - 1:
        return 1
    if deliveries < from_deliveries:
        return None
    return max(1, size >> (deliveries - from_deliveries + 1))
