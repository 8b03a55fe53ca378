"""The simulated cell: placements, and what its platform does without Flyball."""
