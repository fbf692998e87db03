"""The network side of a client: connections, metadata of the cluster, and requests to brokers."""
