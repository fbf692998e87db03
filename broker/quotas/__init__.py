"""Quotas, which limit how much clients may ask for: their records, which one applies to a client, rates and waits.
Pure.
"""
