"""Named producers: who may write under a name, and the highest sequence it has written to each partition, durably."""
