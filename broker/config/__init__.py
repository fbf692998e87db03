"""The settings: the tables of them, where their values come from, and the names of Kafka's settings that have no effect
here.

Also how the process's file descriptors are divided according to them.
"""
