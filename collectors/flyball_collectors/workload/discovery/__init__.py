"""Which replicas run on this node, and where their pages are: a base, and one file per platform."""
