"""Declaration of workloads, with their objectives and limits."""
