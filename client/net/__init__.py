"""The cluster as one client sees it: connections, who leads what, and whom to ask."""
