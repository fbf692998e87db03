"""Reading: what is subscribed, where each partition stands, what is fetched ahead and what is given out."""
