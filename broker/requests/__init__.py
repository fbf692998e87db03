"""From a request to the function that answers it, what that one may use, and what Produce and Fetch are while they run.

Beside the general way are short ways for the commonest requests: each does what the general way does for a request that
is ordinary. Handlers stand above this.
"""
