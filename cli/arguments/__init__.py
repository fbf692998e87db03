"""Arguments that commands have in common: options, positions in a topic, ranges of numbers."""
