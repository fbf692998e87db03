"""A broker inside another process, such as a test."""
