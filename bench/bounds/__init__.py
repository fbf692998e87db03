"""Measurements of fencepost that need no other broker, each with a bound that must hold: loads of `make bench-full`,
named "bound …".
"""
