"""docs/sdk-reference.md, written from the code."""
