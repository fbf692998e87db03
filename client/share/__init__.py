"""The consumer of a share group (KIP-932): records of one partition are given out one by one, to many consumers.

`membership` says what to read, `session` what to ask a broker for, `held` which records this consumer has and what
became of them; all three are pure. `fetcher` and `consumer` move bytes for them.
"""
