"""Which broker owns a journal in an object store: waiting until the owner is silent, taking over, and staying the
owner.
"""
