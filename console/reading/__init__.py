"""What lies in a partition, for the console: records with their fates, and the timeline of batches and markers."""
