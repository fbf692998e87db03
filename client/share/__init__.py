"""The consumer of a share group (KIP-932): records of one partition are given out one by one, to many consumers.

`membership` says what to read, `session` what to ask a broker for, `held` which records this consumer has and what
became of them; all three are pure. `taken` is what one transaction acknowledges. `polls` works between two reads of the
caller, `fetcher` talks to one broker, `consumer` is what the caller holds.
"""
