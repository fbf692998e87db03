"""What can be set: tables of settings, where their values come from, and names that Kafka knows besides.

Also how descriptors are divided by them.
"""
