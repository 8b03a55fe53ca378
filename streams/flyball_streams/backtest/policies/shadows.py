"""State of the shadow-selection policy at its decisions, reconstructed by a replay of a run's inputs."""

import math

import numpy as np

from flyball_models.scaling import Observation, desired, fresh, number, shadow_selection
from flyball_streams.backtest.demands.demand import Demand
from flyball_streams.backtest.kernel import WARM_S
from flyball_streams.backtest.run import Run


def standings(demand: Demand, run: Run, places: list[int]) -> dict[int, shadow_selection.Standing]:
    """State of the members at some changes of a recorded run; a change is the first second with the new number.

    Lost samples and restarts are not replayed: for a run with such faults, this is the state without them.
    """
    policy, state, found = run.policy, fresh(), dict[int, shadow_selection.Standing]()
    kind, row, unused = number(policy), policy.row(), math.nan
    arrived = np.concatenate([np.zeros(1), np.cumsum(demand.work)])
    for t in range(WARM_S, places[-1] if places else 0, policy.every_s):
        at = t - policy.lag_s
        work = [float(arrived[at + 1] - arrived[max(0, at + 1 - n)]) / min(n, at + 1) for n in (5, 30, 180)]
        ready, backlog = float(run.ready[t]), float(run.backlog[at])
        pending = float(run.total[t]) - ready
        seen = [float(t), ready, pending, *work, *[unused] * 5, backlog, 0.0, *[unused] * 3]
        desired(kind, state, Observation._make(seen), row)
        if t + 1 in places:
            found[t + 1] = shadow_selection.standing(state)
    return found


def describe(standing: shadow_selection.Standing) -> str:
    """Sentence with the leader, its cost, and the distance of the next best."""
    place, names = standing.leader, [member.name for member in shadow_selection.MEMBERS]
    after, dearer = shadow_selection.next_best(standing)
    behind = f"next {names[after]}, {100 * dearer:+.1f} %"
    return (
        f"of {len(names)} policies tried in the shadow {names[place]} leads ({behind}): "
        f"it would have cost {standing.hours[place]:.0f} replica-hours for {100 * standing.late[place]:.2f} % late"
    )
