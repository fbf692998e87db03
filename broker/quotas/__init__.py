"""Quotas, how much each client may ask for: their records, which one counts for a client, measurement and waits.
Pure.
"""
