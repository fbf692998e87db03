"""A mirror: topics of one Kafka cluster (the source) copied exactly once to another (the target), offsets included.

The protocol. The tasks of a mirror are members of a consumer group *on the target* (`names.group_id`), subscribed to
the mirrored topics there, which have the names and the partitions of the source's. Who is assigned a partition there
reads the partition of the same number on the source. The group's committed offset is the *position*: the offset of
the next record to read on the source. A task goes round in cycles:

    1. read the positions of its partitions on the target, waiting for offsets that are pending (require_stable)
    2. read the source from there on, read_committed, without a group, up to a *closed cut* (`cut.py`)
    3. write the records in one transaction on the target: key, value, headers, timestamp and partition as they are
    4. when they are acknowledged, write where they went (`offset_map.py`) in the same transaction
    5. add the new positions to it, with the member and its generation (TxnOffsetCommit, KIP-447), and commit

A committed cycle is followed by 2, everything else by 1: after an abort, an unknown outcome, a rebalance or an error
nothing that the task remembered counts. `machine.py` is this table, and has no other way from a doubt to a cycle.

Why that is exactly once. Records, map and position of a cycle are one transaction. A position is read only while no
open transaction may still move it, so a cycle begins where the last committed one ended. A task that was thought dead
has an old generation, so its offsets are refused, and no task commits a transaction without them. The source keeps no
state of the mirror. `tests/simulation/test_mirror_model.py` goes through every order of steps.

What would break it, each tried there: a group on the source (it fences nothing on the target), positions read while
they are pending, positions kept in memory after a doubt, a commit without its offsets.

A position is a committed offset with metadata (`positions.py`): the topic's ids on both sides, and a mark of the batch
before. A partition without a position must be empty on the target; its first position is the source's first offset,
committed in a transaction before any record is written: a plain commit that the network delivers late would set it
back. A topic of the source that is another one by now, or ends before the position (restored, cut), has another batch
where the mark is, or begins after the position (retention), is stopped with one line. Nothing resets a position. One
that is of a deleted topic of the target does not count for the topic that was made there since. A task that stops a
topic commits its positions once more as they are, with the reason in the metadata, for people who look at the status;
whoever goes on there takes the reason away.

The map. `names.MAP_TOPIC` on the target is compacted. A key is mirror, topic, source topic id, partition and the first
source offset that the entry answers for; a value is where the records from there on went, as runs of consecutive
offsets on both sides. A task rewrites the newest entry of a partition with each cycle until it is large
(`offset_map.FULL`), then begins another; after a doubt it always begins another one, at its position, so entries of one
partition never overlap. Entries that end at or below the source's first offset get tombstones.

Which file to open (those marked * are pure):

    what a task does next        task (one member, its cycles), machine* (what may follow what), membership, assignor*
    reading the source           source (in the background), ahead* (what was read, and what is a whole cycle), cut*
    writing the target           writing (records and map), offset_map* (its bytes), positions* (their bytes), names*
    what stops a topic           ahead (other records), source (a log that is too short, or begins too late),
                                 topic_ids (deleted), others (other mirrors), writing (a record that is refused),
                                 topics (a topic that cannot be made), task (a target with records of others)
    what dead tasks leave        leftovers
    before the start             preflight* judges what describing has found; topics makes what is missing
    what people see              findings* (StoppedError, and other problems), status and progress* (how far it is)
    moving groups                cutover; group_offsets* (an offset through the map), map_reader, committed
"""
