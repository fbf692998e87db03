"""All mutants: those that the simulation catches, and those that a test file named here catches sooner."""

from simulation import (  # noqa: F401 (each adds its own)
    cleanup_mutants,
    code_mutants,
    edge_mutants,
    fence_mutants,
    follower_mutants,
    group_mutants,
    hold_mutants,
    journal_mutants,
    limit_mutants,
    migration_mutants,
    mirror_mutants,
    mutants,
    named_mutants,
    pending_mutants,
    rights_mutants,
    sdk_code_mutants,
    sdk_inbox_mutants,
    sdk_loss_mutants,
    sdk_mutants,
    sdk_outbox_mutants,
    sdk_share_mutants,
    security_mutants,
    share_fetch_mutants,
    share_group_mutants,
    share_mutants,
    shipping_mutants,
    shown_mutants,
    spark_mutants,
)
from simulation.planting import IN_STORE, KILLED_BY, MUTANTS, PROMISES, WITH_MIRROR, WITH_QUEUES

SIMULATED = [name for name in MUTANTS if name not in KILLED_BY]
__all__ = ["IN_STORE", "KILLED_BY", "MUTANTS", "PROMISES", "SIMULATED", "WITH_MIRROR", "WITH_QUEUES"]
