"""Demand of the workloads on the nodes of a lane: what replicas report, by workload and tick."""
