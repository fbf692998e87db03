"""One function an API: what a request does, and its answer."""
