"""The servers (peers) that are compared, as processes on loopback."""
