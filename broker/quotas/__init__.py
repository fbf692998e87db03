"""How much each client may ask for: quotas as they are kept, what they come to, and how they are enforced."""
