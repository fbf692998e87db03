"""What is done to a server while it is measured, each load in a process of its own."""
