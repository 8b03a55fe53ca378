"""The budget of false incidents, divided among the statistical detectors."""

BUDGET_S = 1000 * 86_400.0
"""Period of the budget in s: a thousand GPU-days."""
GPUS_SHARE, HOSTS_SHARE, SUBSPACE_SHARE, STEPS_SHARE, LATENCY_SHARE = 0.45, 0.05, 0.05, 0.05, 0.05
"""Shares of the budget for departures of GPUs, departures of hosts, hosts by all their series together, changes of
step times, and replicas that answer late or not at all."""
SOJOURNS_SHARE, HOST_SOJOURNS_SHARE, LOST_SHARE = 0.125, 0.025, 0.05
"""Shares for GPUs and hosts that stay too long in a state, and GPUs without values."""
HELD_UP_SHARE, SILENCE_SHARE, COURSES_SHARE = 0.05, 0.05, 0.05
"""Shares for hosts that hold work up, silent nodes, and the course of services."""


def score(expected_false: float, budget: float) -> float:
    """Score of an anomaly: 0.5 if it is just within the budget, towards 1 if it never happens on healthy hardware."""
    return budget / (budget + expected_false)
