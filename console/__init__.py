"""The web console, its REST API and its events: what `fencepost console` and `fencepost serve --http` open.

The rule: it knows the cluster by Kafka's APIs only, through `client/`, so it works with any Kafka, and what its own
login may do is all that it can do. It runs in a process of its own, and the broker does not notice if it dies.
"""
