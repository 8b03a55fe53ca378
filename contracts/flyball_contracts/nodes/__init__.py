"""Nodes as their platforms show them: whether they take work, and who has closed them."""
