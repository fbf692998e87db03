"""What consumer groups of the newer protocol (KIP-848) and share groups have in common: the broker assigns their
partitions.
"""
