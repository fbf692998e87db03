"""The cutover: consumer groups of the source go on at the target, each with exactly the next record.

`plan.py` (pure) says what it does and what stands against it, `record.py` (pure) what it leaves on the target so that
it may be run again after a crash, `running.py` carries it out on a `Sides`, and `sides.py` is that: both clusters.
"""
