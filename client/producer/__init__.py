"""Writing: records into batches, batches into requests, answers into deliveries."""
