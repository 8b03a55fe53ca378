"""Explains the largest decisions: the binding rule, its inputs, and the baseline's replicas at that time."""

import math
from typing import NamedTuple

import msgspec
import numpy as np

from flyball_models.scaling import Observation, desired, fresh, number, shadow_selection
from flyball_models.sizing import lead_time_headroom
from flyball_models.sizing.slo_headroom import LONGEST
from flyball_streams.backtest.demands.demand import MINUTE_S, Demand, trailing_mean
from flyball_streams.backtest.kernel import WARM_S, Floats
from flyball_streams.backtest.policies.groups import Setting
from flyball_streams.backtest.run import Run
from flyball_streams.engine.rows import known

SHOWN = 8
APART_S = 1800
WINDOW_S = 30
REMEMBERED = 600
"""Minutes of history that an explanation uses, five half-lives of the errors."""


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


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """One decision.

    ``time_s`` is Unix time; ``rule`` is the binding rule; ``baseline`` is the tuned baseline's replicas.
    """

    time_s: float
    before: int
    after: int
    rule: str
    demand: float
    backlog: float
    upper: float | None
    lower: float | None
    baseline: int | None
    baseline_later: int | None
    reason: str


def explain(
    demand: Demand, setting: Setting, run: Run, base: Run | None, begin_s: int, shown: int = SHOWN
) -> list[Explained]:
    """Explain the largest changes after `begin_s`, in order of time, none within half an hour of a larger one."""
    change = np.abs(np.diff(run.total[begin_s:], prepend=run.total[begin_s : begin_s + 1]))
    chosen: list[int] = []
    for at in np.argsort(-change, kind="stable")[: shown * 200].tolist():
        if change[at] and all(abs(at - other) >= APART_S for other in chosen):
            chosen.append(at)
        if len(chosen) == shown:
            break
    places = [begin_s + at for at in sorted(chosen)]
    stood = standings(demand, run, places) if setting.policy.kind == "shadow_selection" else {}
    return [_one(demand, setting, run, base, at, stood.get(at)) for at in places]


def _one(
    demand: Demand, setting: Setting, run: Run, base: Run | None, at: int, standing: shadow_selection.Standing | None
) -> Explained:
    # The total of a second is written before the policy decides, so the policy decided one second earlier.
    requested = at - 1
    before, after = int(run.total[at - 1]), int(run.total[at])
    bounds = setting.bounds
    place = min(requested // bounds.step_s, len(bounds.upper) - 1)
    upper, lower = known(bounds.upper[place]), known(bounds.lower[place])
    seen = max(0, requested - setting.policy.lag_s)
    work = float(demand.work[max(0, seen + 1 - WINDOW_S) : seen + 1].mean())
    backlog = float(run.backlog[seen])
    up = after > before
    headroom = _headroom(demand, setting, seen, work, backlog)
    if standing is not None:
        rule, explanation = "shadow_selection" if up else "release", describe(standing)
    elif headroom is not None:
        rule, explanation = _headroom_rule(up, after, headroom, backlog)
    else:
        rule, explanation = _rule(up, after, upper, lower, backlog)
    later = min(len(run.total) - 1, at + round(run.scenario.cold_start_s))
    have = int(base.total[at]) if base is not None else None
    then = int(base.total[later]) if base is not None else None
    reason = f"{before} → {after}: {explanation}; demand was {work:.1f} replicas"
    if backlog > 0.5:
        reason += f" and {backlog:.0f} replica-seconds of work waited"
    reason += f" ({setting.policy.name})"
    return Explained(
        time_s=demand.start_s + at,
        before=before,
        after=after,
        rule=rule,
        demand=work,
        backlog=backlog,
        upper=upper,
        lower=lower,
        baseline=have,
        baseline_later=then,
        reason=reason,
    )


class _Headroom(NamedTuple):
    """Inputs of the headroom policy: level, spread, present need with its backlog, and the needs of the last hour."""

    level: float
    spread: float
    present: float
    needs: Floats


def _headroom(demand: Demand, setting: Setting, seen: int, work: float, backlog: float) -> _Headroom | None:
    """Inputs of a headroom policy, computed from the demand; ``None`` for other policies and in the first minutes."""
    if setting.policy.kind not in ("headroom", "lead_time_headroom") or seen < 10 * MINUTE_S:
        return None
    knobs, ahead = setting.policy.knobs, setting.policy.kind == "lead_time_headroom"
    shown = min(REMEMBERED if ahead else int(knobs[2]), seen // MINUTE_S)
    tail = demand.work[seen + 1 - shown * MINUTE_S : seen + 1]
    sampled = 5 * int(knobs[6] if ahead else knobs[5])
    needs = np.sort(trailing_mean(tail, sampled).reshape(shown, -1)[:, 4::5], axis=1)[:, -2]
    level = float(tail[-int(knobs[1]) * MINUTE_S :].mean())
    if not ahead:
        return _Headroom(level, float(needs.std()), work + backlog / knobs[4], needs)
    means = tail.reshape(shown, MINUTE_S).mean(axis=1)
    levels = trailing_mean(means, int(knobs[1]))[int(knobs[1]) - 1 :]
    off = needs[-len(levels) :][int(knobs[7]) :] - levels[: -int(knobs[7])]
    weights = 0.5 ** (np.arange(len(off))[::-1] / lead_time_headroom.HALF_LIFE)
    error = float((weights * off**2).sum() / weights.sum()) if len(off) else 0.0
    hour = needs[-LONGEST:]
    spread = float(np.sqrt((1 - lead_time_headroom.OF_HOUR) * error + lead_time_headroom.OF_HOUR * hour.var()))
    return _Headroom(level, spread, work + backlog / lead_time_headroom.DRAIN_S, hour)


def _headroom_rule(up: bool, after: int, seen: _Headroom, backlog: float) -> tuple[str, str]:
    if up and seen.present > after - 1:
        more = f"than the level of {seen.level:.1f} and its headroom"
        if backlog > 0.5:
            return "backlog", f"present demand and its backlog ask for more {more}"
        return "present demand", f"present demand asks for more {more}"
    z = (after - seen.level) / seen.spread if seen.spread > 0 else 0.0
    covers = 100 * float((seen.needs <= after).mean())
    parts = f"level {seen.level:.1f} + headroom of {z:.1f} times the spread of {seen.spread:.1f}"
    explanation = f"{parts}, which covers {covers:.0f} % of the minutes of the last hour"
    return ("headroom", f"the target rose to {explanation}") if up else ("release", f"the target fell to {explanation}")


def _rule(up: bool, after: int, upper: float | None, lower: float | None, backlog: float) -> tuple[str, str]:
    if up and upper is not None and after <= math.ceil(upper) + 1:
        return "forecast", f"the forecast sees {upper:.1f} needed once a replica ordered now is ready"
    if up:
        why = "its backlog" if backlog > 0.5 else "the present demand"
        return "reactive", f"{why} asks for more than the forecast" + ("" if upper is None else f" ({upper:.1f})")
    if lower is not None:
        return "release", f"no more than {lower:.1f} are needed from now until a replica ordered later would be ready"
    return "release", "the demand that is held fell"
