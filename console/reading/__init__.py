"""The contents of a partition, for the console: records, each with its transaction's outcome, and the timeline of
batches and markers.
"""
