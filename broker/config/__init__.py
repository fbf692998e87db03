"""The settings: tables of them, where their values come from, and names of Kafka's settings that have no effect here.

Also how descriptors are divided by them.
"""
