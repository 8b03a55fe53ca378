"""The budget of false incidents, shared out among the detectors that learn what is usual."""

BUDGET_S = 1000 * 86_400.0
"""Seconds of what the budget is for: a thousand GPU-days."""
GPUS_SHARE, HOSTS_SHARE, STEPS_SHARE = 0.8, 0.15, 0.05
"""Shares of departures of GPUs, of hosts, and of changes of step times."""


def score(expected_false: float, budget: float) -> float:
    """0.5 for what is just within the budget of false incidents, towards 1 for what never happens where all is well."""
    return budget / (budget + expected_false)
