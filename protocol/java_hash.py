"""Java's String.hashCode, by which Kafka chooses the partition of a group or a transactional id. Pure.

The rule: the hash is taken over UTF-16 code units, in 32 bits with sign; of it the absolute value, and 0 where that
does not fit 32 bits. Source: S-57, Kafka's Utils.abs, GroupCoordinatorService.partitionFor.
"""

LOWEST = -(2**31)


def java_hash(text: str) -> int:
    """Return Java's `hashCode` of this text, a signed number of 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    found = 0
    for position in range(0, len(units), 2):
        found = (31 * found + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return found - 2**32 if found > 0x7FFFFFFF else found


def partition_for(key: str, partitions: int) -> int:
    """Return the number of the partition, of `partitions`, that has the state of this group or transactional id."""
    found = java_hash(key)
    return 0 if found == LOWEST else abs(found) % partitions
