"""A compacted log in few words: what is put into it, a whole compaction, and what readers find then."""

from fencepost.protocol.records import Record
from log_driver import LogDriver, keyed

HORIZON_MS = 1000


def compacted_log(**settings: object) -> LogDriver:
    """Return a log whose segments hold one or two small batches each, and which is compacted whenever asked."""
    chosen = {
        "cleanup_policy": "compact",
        "segment_bytes": 160,
        "min_cleanable_dirty_ratio": 0.0,
        "delete_retention_ms": HORIZON_MS,
        **settings,
    }
    return LogDriver(**chosen)


def put(driver: LogDriver, *pairs: tuple[bytes, bytes | None], **fields: object) -> int:
    return driver.append(keyed(pairs, **fields))


def clean(driver: LogDriver, **limits: int) -> None:
    """Compact everything that was written: filler batches make the older segments inactive and older than the older
    snapshot.
    """
    driver.settle()
    put(driver, (b"filler", b"."))
    put(driver, (b"filler", b"."))
    driver.settle()
    driver.compact(**limits)


def visible(driver: LogDriver) -> dict[bytes | None, Record]:
    return {record.key: record for record in driver.committed() if record.key != b"filler"}


def values(driver: LogDriver) -> dict[bytes | None, bytes | None]:
    return {key: record.value for key, record in visible(driver).items()}
