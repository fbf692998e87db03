"""Short ways for the commonest requests: each does what the general way does for a request that is ordinary."""
