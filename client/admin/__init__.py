"""The Admin client, one module for each area: topics, configs, groups, offsets, transactions, batches."""
