"""From a request to the function that answers it, what that one may use, and what Produce and Fetch are while they run.

Beside the general path are fast paths for the commonest requests: each does the same as the general path, for requests
that are ordinary. Handlers stand above this.
"""
