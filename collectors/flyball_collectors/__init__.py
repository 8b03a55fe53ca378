"""The node agent and everything that measures."""
