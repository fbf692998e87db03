"""Who may log in, do what, and how much: `fencepost user`, `fencepost acl` and `fencepost quota`."""
