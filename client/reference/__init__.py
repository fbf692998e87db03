"""Generates docs/sdk-reference.md from the code."""
