"""Passes a request to the handler that answers it, provides what handlers may use, and runs Produce and Fetch.

Besides the general path there are fast paths for the most frequent requests. Each does the same as the general path,
for requests of an ordinary form. Handlers import this package, not the other way round.
"""
