"""Looking after a cluster: one client, an area a module."""
