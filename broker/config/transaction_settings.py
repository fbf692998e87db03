"""The settings of transactions: a part of the broker's table (settings.py), with its rules.

Kafka's names and defaults where Kafka has them. None of them may be set so low that a transaction that has begun could
not end.
"""

from dataclasses import dataclass

from .options import ConfigType, option

INT = ConfigType.INT
V1_POLICIES = ("fence-connections", "allow", "refuse")


@dataclass(frozen=True, kw_only=True)
class TransactionSettings:
    """The settings of the transaction coordinator."""

    transaction_max_timeout_ms: int = option(
        900_000, "The longest transaction.timeout.ms that a producer may ask for.", type=INT, at_least=1, dynamic=True
    )
    transaction_prepared_max_timeout_ms: int = option(
        86_400_000,
        "The longest time that a transaction may wait for its decision after PrepareTxn; the Spark sink asks for 1 h.",
        type=INT,
        at_least=1,
        dynamic=True,
    )
    transactional_id_expiration_ms: int = option(
        604_800_000, "A transactional id without a transaction for so long is forgotten.", type=INT, at_least=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = option(
        10_000, "How often transactions that are open for too long are looked for.", type=INT, at_least=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = option(
        3_600_000, "How often transactional ids to be forgotten are looked for.", type=INT, at_least=1
    )
    max_transactional_ids: int = option(
        1_000_000,
        "Transactional ids that are known at one time; a new one takes the place of the one that was not used for "
        "longest.",
        type=INT,
        at_least=1,
        dynamic=True,
    )
    transaction_v1_policy: str = option(
        "fence-connections",
        "Clients whose epoch stays the same from transaction to transaction: a request that comes over an older "
        "connection than one before it is dropped and that connection closed (fence-connections), or served as Kafka "
        "does (allow), or none of their requests are (refuse).",
        one_of=V1_POLICIES,
        dynamic=True,
    )
    transactional_id_ephemeral_prefix: str = option(
        "fencepost.once.",
        "Transactional ids that begin so are for one transaction: with its end the id and its producer are forgotten. "
        "Empty: none are.",
    )
    max_prepared_transactions: int = option(
        10_000,
        "Transactions that wait for a decision of the ledger at one time; above it PrepareTxn is refused.",
        type=INT,
        at_least=0,
        dynamic=True,
    )
    max_ledger_entries: int = option(
        100_000,
        "Keys of the ledger; above it EndTxns under a new one is refused, and PrepareTxn with a hold.",
        type=INT,
        at_least=0,
        dynamic=True,
    )
    max_named_producers: int = option(
        10_000,
        "Named producers; above it a new name is refused. None expires: an admin removes them.",
        type=INT,
        at_least=0,
        dynamic=True,
    )
    max_named_producer_partitions: int = option(
        100_000,
        "Topics and partitions to which named producers write, all names together; above it a name gets no more.",
        type=INT,
        at_least=0,
        dynamic=True,
    )
    transaction_prepared_alert_ms: int = option(
        3_600_000,
        "A transaction that has waited for its decision for so long is named in the log, and counted. A held one is "
        "after at most 60 s.",
        type=INT,
        at_least=1,
        dynamic=True,
    )
    transaction_two_phase_commit_enable: bool = option(
        False,
        "Whether a producer may ask for transactions that no timeout ends: with KIP-939's InitProducerId, or with "
        "PrepareTxn and a timeout of -1.",
    )
