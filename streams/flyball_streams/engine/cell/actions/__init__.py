"""Actions of the cell lane: one file for each, and what they share."""
