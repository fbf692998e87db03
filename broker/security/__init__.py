"""Who a client is, what it may do, and the log that keeps both."""
