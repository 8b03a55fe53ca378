"""The GPUs and MIG instances of a node, and how they are connected."""
