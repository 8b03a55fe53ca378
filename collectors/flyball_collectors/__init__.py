"""The node agent and its collectors."""
