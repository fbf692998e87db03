"""What Produce and Fetch need beside their handlers: sessions, many partitions, batches that take long."""
