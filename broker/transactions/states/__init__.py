"""One transaction as values: its states, and what each event does in each of them. Pure; imports nothing beside it."""
