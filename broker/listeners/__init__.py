"""Who may connect to which listener: logins, certificates, and limits for clients that have not logged in."""
