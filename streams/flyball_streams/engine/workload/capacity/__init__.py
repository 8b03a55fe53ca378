"""What a replica sustains, and how long its start takes, learned from demand."""
