"""Bounds of fencepost's own, which need no other broker: loads of `make bench-full`, named "bound …"."""
