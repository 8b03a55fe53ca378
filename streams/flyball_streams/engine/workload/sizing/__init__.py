"""From demand to replicas: one policy a file, and the reason for each change."""
