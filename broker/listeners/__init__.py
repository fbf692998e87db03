"""Who may connect to which listener: logins, TLS certificates, and limits on clients that have not logged in."""
