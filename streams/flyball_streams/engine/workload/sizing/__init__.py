"""From demand to replicas: one policy per file, and the reason for each change."""
