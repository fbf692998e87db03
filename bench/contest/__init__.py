"""`make bench`: fencepost and its peers under the same loads, alternately; and the reports made of the figures."""
