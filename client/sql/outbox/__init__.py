"""The relay from an outbox table into topics. `relaying.py` is the theory, and what is decided; `rows.py` and
`statements.py` are the table; `table.py` asks the database, `ways.py` the broker, and `relay.py` goes on for ever.
docs/how-to/database.md is for users.
"""
