"""Backups of a data directory, taken beside a running broker too, and how one is restored."""
