"""The budget of false incidents, divided among the statistical detectors."""

BUDGET_S = 1000 * 86_400.0
"""Period of the budget in s: a thousand GPU-days."""
GPUS_SHARE, HOSTS_SHARE, STEPS_SHARE = 0.8, 0.15, 0.05
"""Shares of the budget for departures of GPUs, departures of hosts, and changes of step times."""


def score(expected_false: float, budget: float) -> float:
    """Score of an anomaly: 0.5 if it is just within the budget, towards 1 if it never happens on healthy hardware."""
    return budget / (budget + expected_false)
