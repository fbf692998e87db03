"""What consumer groups of the newer protocol (KIP-848) and share groups have in common: the broker assigns their
partitions.

A group (group.py) changes in events, each of them one unit, and its members are assigned anew when it has changed; the
coordinator (coordinator.py) has all groups of one kind, their log, their alarms, and the work that is done in slices.
"""
