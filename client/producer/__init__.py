"""The producer: records into batches, batches into requests, responses into deliveries."""
