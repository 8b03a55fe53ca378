"""Conditions of nodes: what speaks against a node, when it takes no work, and the checks that show it is healthy."""
