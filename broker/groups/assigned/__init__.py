"""The parts that consumer groups of the newer protocol (KIP-848) and share groups have in common, because the broker
assigns their partitions.

A group (group.py) changes in events. Each event is written as one unit (atomically), and a change leads to a new
assignment. The coordinator (coordinator.py) has all groups of one type, their log, their alarms, and the work that is
done in steps.
"""
