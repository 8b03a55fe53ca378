"""The simulated cell: what runs where, and what its platform does by itself."""
