"""What is known of the cluster: one view, read for all browsers together, and what changed between two of them."""
