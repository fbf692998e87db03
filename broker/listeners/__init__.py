"""Who may come in by which listener: logins on connections, certificates, and bounds on whoever is not known yet."""
