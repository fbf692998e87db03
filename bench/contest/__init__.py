"""`make bench`: fencepost and its peers under the same loads, in turns, and what becomes of the figures."""
