"""Who may log in with a password, and who may do what: `fencepost user` and `fencepost acl`."""
