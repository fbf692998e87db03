"""Databases that take part in commits, inboxes and outboxes. docs/how-to/database.md is for users.

`client/transactions/deciding.py` is the theory of one commit; `sql_commits.py` and `sql_steps.py` beside it carry it
out, and ask a `Database` of `interfaces.py`. What is here, in the order in which a commit meets it:

| file | |
|---|---|
| `connecting.py` | `sql.connect(…)`: which database, and which adapter |
| `blocks.py` | the block of a transaction, alike for all databases |
| `postgresql.py`, `sqlite.py` | settings and identity, the decision, and what is asked over another connection |
| `statements.py` | our tables, and the statements on them |
| `…_adapter.py`, `…_blocking.py` | one connection of a driver; `drivers.py` and `threads.py` have what they share |
| `connections.py`, `…_opening.py` | where connections come from: a URL, a pool, or the user |
| `resolving.py`, `forgetting.py` | ending what writers left, and forgetting their ids |
| `places.py` | the theory of an inbox; `place_statements.py` has its table |
| `keeping.py`, `inbox.py` | where a consumer reads on, and the block of one batch |
| `outbox/` | the relay of an outbox |
"""
