"""Discovery of this node's replicas and their pages: a base, and one file per platform."""
