"""Passes a request to the handler that answers it, provides what handlers may use, and runs Produce and Fetch.

Beside the general path are fast paths for the commonest requests: each does the same as the general path, for requests
that are ordinary. Handlers stand above this.
"""
