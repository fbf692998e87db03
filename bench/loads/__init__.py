"""The loads that servers are measured under, each in a process of its own."""
