"""Share partitions (KIP-932): records of one partition, given out one by one and acknowledged in any order.

The parts, from what others call down to the bytes in the log, each with the question that it answers:

    partitions.py     SharePartitions  what may ShareFetch, acknowledgements, transactions and groups ask for?
    locks.py          Locks            whose locks end without a word, with a session or in time? (ended.py finds them)
    acquiring.py      take()           which of the records that were read does a member get? (bad_records.py: how few)
    acknowledging.py  Acknowledging    what does one request acknowledge, in all share partitions that it names?
    portions.py       Portions         and in one of them, decided a few runs at a time, with others served between?
    machine.py        SharePartition   what may become of the records of one share partition?
    runs.py           Runs             what state has each record? Neighbours that are alike are one run
    logged.py         LoggedPartition  where in the log is what a restart needs of it, and how is that encoded in steps?
    state_log.py      ShareStateLog    what is logged in one unit, and what do that and a replay change?
    replay.py         Replay           what of the log does a start decode, and in which order does it apply that?
    records.py        -                which bytes are that?
    pending.py        PendingAcknowledgements   where has a transaction something pending, and what may its end log?
    memory.py         RunMemory        how many runs may a share partition have?
    counts.py         -                what of all that is counted in the metrics?
    values.py         -                what do the parts give each other?

Decide, log, apply, as in the whole broker; this is the way of an acknowledgement, and the end of a lock goes it too:

    Acknowledging.decide_ahead()   Portions ask SharePartition.decide_acks(), in steps; nothing changes
    Acknowledging.finish()         decides the rest and what others have changed meanwhile; then, in the same step,
      ShareStateLog.commit()         one unit, with an EncodedUpdate for each share partition, and
      Portions.apply()               SharePartition.apply_decided(): what apply() makes of that record in a replay

In a transaction they are decided by decide_pending(), logged by pending_unit() in the unit of the transaction's state,
and applied by apply_decided_pending(); the marker comes later, through SharePartitions.settle().

An acquisition is in memory alone: decide_acquisition(), then acquire(). Only what it archives is logged, before.
A session is none of this: broker/requests/share/sessions.py. Who is in a group: broker/groups/share/.
"""
