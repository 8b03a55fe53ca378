"""Machine pools of a cell: buys machines for work without room, and returns empty ones."""
