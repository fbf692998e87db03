"""Authentication and authorization of clients, and the log of users, rules of access and quotas."""
