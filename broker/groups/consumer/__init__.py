"""Consumer groups of the newer protocol (KIP-848), in which the broker decides who reads which partition.

Three epochs tell how far everybody is:

    group epoch        grows with each change of members, subscriptions or topics
    target assignment  what each member is to read, made for one group epoch by an assignor (assignors.py)
    member epoch       the target that this member has got to; it sends it with each heartbeat and commit

    a change → group epoch + 1 → a target assignment for it → each member, by its own heartbeats, and nobody waits:

        STABLE ──other target──► UNREVOKED ──reports that it owns nothing of that any more──┐
          ▲  │                   (what is not in the target is to be given up;              │
          │  └─nothing to give up─┐ it stays in its epoch and gets nothing)                 │
          │                       ▼                                                         ▼
          └──all of the target── has the target's epoch, and of the target what is free ◄───┘
                                  │
                                  └─others still have some of it─► UNRELEASED: each heartbeat gets what is free by then

Why no partition ever has two owners: one that a member may read, or has not given up, is in its record; only a
heartbeat of that member, or its end, takes it out; and another member gets none that is in anybody's record
(reconciling.py). A member that is taken for dead may still read for a while; its commits are refused (machine.py).

Why it goes on: a member that does not report for its session timeout, or does not give up within its rebalance timeout,
is removed, and what it had is free.

Members of the classic protocol may be among them (classic_members.py): so a group changes its protocol while its
members are restarted one by one (migration.py).

What survives a restart is in records, one for each key (records.py): the group is what they say (roster.py), so
nobody's epoch changes and no partition moves. Deadlines are not: everybody has a whole session again.
"""
