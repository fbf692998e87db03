"""What Produce and Fetch are while they run: more than one partition, more than one step."""
