"""What the scene's day has cost and achieved, with Flyball and without."""

import numpy as np
from tests.dashboard.scenes.fleet import CELL, NOW

from flyball_contracts.ids import NS_PER_S, record_id
from flyball_contracts.records import Account, Scenario, WorkloadAccount

SINCE = NOW - 6 * 3600 * NS_PER_S
STEP_S = 120
_SHARES = {"chat-70b": 0.6, "search-embed": 0.3, "vision-api": 0.1}


def accounts() -> list[Account]:
    """Both scenarios every two minutes: without Flyball a peak in the fourth hour is late."""
    return sorted((*_of("actual"), *_of("baseline")), key=lambda account: account.time_ns)


def _of(scenario: Scenario) -> list[Account]:
    made: list[Account] = []
    plain = scenario == "baseline"
    requests = in_time = 0.0
    for i in range(0, 6 * 3600 + 1, STEP_S):
        hour = i / 3600
        rate = float(14.0 + 9.0 * np.exp(-(((hour - 3.6) / 0.7) ** 2)) + 0.4 * np.sin(i / 700))
        strain = float(np.exp(-(((hour - 3.7) / (0.55 if plain else 0.2)) ** 2)))
        late = (0.62 if plain else 0.09) * strain + 0.002
        requests += rate * STEP_S * (i > 0)
        in_time += rate * STEP_S * (1 - late) * (i > 0)
        queued, delay = (1400.0 if plain else 120.0) * strain + 3.0, (48.0 if plain else 5.0) * strain + 0.4
        made.append(
            Account(
                id=record_id("Account", scenario, i), subject=CELL, cell=CELL, scenario=scenario, since_ns=SINCE,
                time_ns=SINCE + i * NS_PER_S, gpu_h=(338.0 if plain else 291.0) * hour,
                cost_usd=(1152.0 if plain else 1004.0) * hour, energy_j=(188.0 if plain else 161.0) * hour * 3.6e6,
                carbon_g=(51_200.0 if plain else 38_900.0) * hour, requests=requests, in_time=in_time, queued=queued,
                lost_gpu_h=(2.9 if plain else 0.4) * hour, useful_gpu_h=(196.0 if plain else 203.0) * hour,
                workloads=tuple(
                    WorkloadAccount(
                        workload=name, replicas=6, ready=6, gpu_h=24.0 * hour, requests=share * requests,
                        in_time=share * in_time, queued=share * queued, delay_s=delay,
                    )
                    for name, share in _SHARES.items()
                ),
            )
        )  # fmt: skip
    return made
