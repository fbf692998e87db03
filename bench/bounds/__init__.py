"""Bounds: measurements of fencepost that need no other broker, each with a limit that must hold. Loads of `make
bench-full`, named "bound …".
"""
