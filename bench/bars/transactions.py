"""The transaction bars of `make bench-bars`: aborted ranges, and very many ids."""

from ..loads import aborted
from ..loads import many_ids as ids
from .rows import Row


def aborted_fetch() -> list[Row]:
    """Reading a range in which 10,000 transactions were aborted, at both isolation levels."""
    committed, uncommitted = aborted.measure()
    name = f"read_committed over {aborted.ABORTED:,} aborted transactions: CPU"
    return [
        Row(name, committed / uncommitted, "<=", 1.5, f"{committed:.1f} ms", f"read_uncommitted {uncommitted:.1f} ms")
    ]


def many_ids() -> list[Row]:
    """200,000 producers and 100,000 transactional ids: stalls while they come, and the next start."""
    measured = ids.measure()
    against = f"{ids.PRODUCERS:,} producers, {ids.TRANSACTIONAL_IDS:,} ids in {measured.seconds:.0f} s"
    return [
        Row(
            "longest stall while very many ids come, ms",
            measured.stall_ms,
            "<=",
            50,
            f"{measured.stall_ms:.0f} ms",
            against,
        ),
        Row("start with very many ids after kill -9, s", measured.ready_s, "<=", 3.0, f"{measured.ready_s:.2f}", "-"),
    ]
