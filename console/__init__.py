"""The web console, its REST API and its events: what `fencepost console` and `fencepost serve --http` open.

The rule: it reaches the cluster only by Kafka's APIs, through `client/`, so it works with any Kafka, and can do only
what its own login may do. It runs in a process of its own, and the broker does not notice if it dies.
"""
