"""The journal in an object store: rounds and seals as objects, and the fence between the brokers that write them."""
