"""Reading: what is fetched ahead and what is given out. Where each partition stands: group/subscription.py."""
