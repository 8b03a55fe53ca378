"""What the cell lane decides to do: one file for each action, and what they share."""
