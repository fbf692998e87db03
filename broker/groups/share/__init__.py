"""Share groups (KIP-932): several members read one partition, and each record is given to one of them at a time.

A group says who is in it and which partitions each member is to ask for; what becomes of the records of a partition is
the business of its share partition (../../share/). Three epochs tell how far everybody is:

    group epoch        grows with each change of members, subscriptions, topics, or initialized partitions
    target assignment  what each member is to read, made for one group epoch (assignor.py)
    member epoch       the target that this member has got to; it sends it with each heartbeat

A partition may be read by several members at once, so nobody gives anything up first: a member has its whole target
with its next heartbeat. Membership touches no record that a member has acquired: who is taken for dead may acknowledge
still what it has, until the lock on it ends.

A partition is assigned once the group has a state for it, which says where its reading begins. Group and state are
made in one unit, so the first answer to a member has its assignment. What survives a restart is in records, one for
each key (records.py): the group is what they say. Deadlines are not: everybody has a whole session again.
"""
