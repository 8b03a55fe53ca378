"""One view per kind of subject: a decision, a GPU, a node, a workload, an incident, a report."""
