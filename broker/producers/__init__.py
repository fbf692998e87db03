"""Named producers: who may write under a name, and how far it has got in each partition, durably."""
