"""What platforms promise, and what they were seen to do."""
