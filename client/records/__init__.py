"""The records of what was fetched: which batches a reader may see, and how their bytes become columns."""
