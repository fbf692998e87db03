"""What a ledger key says about who decides."""

import pytest
from fencepost.protocol.ledger_keys import database_of, held_text


@pytest.mark.parametrize(
    ("key", "database"),
    [("sql:db:orders-1", "db"), ("sql:db:a:b", "db"), ("sql::a", None), ("sql:db:", None), ("sink", None), ("", None)],
)
def test_database_of_returns_the_database_in_a_ledger_key_of_the_sdk_and_else_none(key, database):
    assert database_of(key) == database


def test_held_text_names_the_database_or_ledger_key_that_decides_a_transaction():
    assert held_text("sql:db:x", 3).startswith("decision 3 of database db, ")
    assert held_text("sql:db:x", 3).endswith("fencepost txn resolve --db URL")
    assert held_text("mine", 3) == "decision 3 under the ledger key mine, and nothing else ends it (held)"
