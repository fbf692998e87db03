"""From the socket to a handler and back: connections, limits, work shared among turns of the loop, and replies in
order.
"""
