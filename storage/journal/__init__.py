"""The write-ahead journal: its bytes, its files, and what it holds after a crash."""
