"""What commands print, and how they end: by a failure, or by a signal."""
