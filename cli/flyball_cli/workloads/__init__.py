"""The door by which a workload, its objective and its limits come to Flyball."""
