"""The servers that are measured beside each other, as processes on loopback."""
