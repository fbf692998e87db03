"""What the console answers, by topic: each module has its handlers and, below them, their rows of the route table."""
