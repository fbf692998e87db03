"""From the socket to a handler and back: connections, limits, turns, dispatch, and replies in order."""
