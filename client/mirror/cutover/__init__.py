"""The cutover: consumer groups of the source go on at the target, each with exactly the next record.

`plan.py` (pure) says what it will do, and for which problems it must not begin. `record.py` (pure) has what it writes
on the target, so that it may be run again after a crash. `running.py` carries it out, by the methods of `Sides`, which
`sides.py` implements for both clusters.
"""
