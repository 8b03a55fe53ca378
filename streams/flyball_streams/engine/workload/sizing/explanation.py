"""A change of replicas in words and numbers: what it rests on, and what HPA would have done."""

import math
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from flyball_contracts.records import Demand, Evidence, WorkloadSpec
from flyball_models.sizing.lead_time_headroom import DRAIN_S, HELD_S
from flyball_models.sizing.limits import AHEAD
from flyball_streams.engine.workload.forecast.forecaster import View
from flyball_streams.engine.workload.sizing.policy import Led

NAMED_EXPERTS = 3
"""The forecast has the weights of all experts; a proposal names so many, the largest."""
WELL_KNOWN = 60
"""Minutes of history that headroom needs at most."""


class Case(NamedTuple):
    """All that a change rests on. ``needed`` are replicas before what may change at once, ``granted`` after it.

    ``work`` is that which is needed and ``load`` what a replica is given of it; ``ahead`` is what the forecast sees at
    its quantile ``level_of``, NaN where it is not trusted, and ``tolerance`` how far its coverage may be off.
    ``level``, ``spread`` and ``z`` make the headroom, of which the largest of ``keep_s`` counts and whose z follows the
    ``share`` that is in time; ``error`` is by how much the need is off the level ``lead_minutes`` before, which is part
    of the spread of ``lead``. ``hpa`` is 0 where it has seen too little, and ``led`` says who leads under ``learned``.
    """

    policy: str
    base: str
    spec: WorkloadSpec
    demand: Demand
    view: View
    levels: tuple[float, ...]
    tolerance: float
    forecast_id: str
    source: str
    capacity: float
    granted: int
    wanted: int
    needed: float
    work: float
    load: float
    ahead: float
    level_of: float
    lead_s: float
    level: float
    spread: float
    z: float
    error: float
    lead_minutes: int
    keep_s: float
    minutes: int
    share: float
    delay_s: float
    idle_s: float
    hpa: float
    led: Led | None


def explained(case: Case) -> tuple[str, float, tuple[Evidence, ...]]:
    """Reason, confidence and evidence of a change."""
    said = (_basis(case), _sum(case), _limit(case), _lead(case), _doubt(case), _hpa(case))
    return "; ".join(filter(None, said)), _confidence(case), _proof(case)


def _basis(case: Case) -> str:
    unit = "busy GPUs" if case.source == "GPUs" else "work/s"
    if case.granted == 0:
        return f"nothing was asked for during {_plain(case.idle_s)} s"
    if case.demand.replicas == 0:
        rate, waits = case.demand.request_rate or 0.0, case.demand.queued or 0.0
        told = [f"{_plain(rate)} requests/s arrive"] if rate else []
        told += [f"{_plain(waits)} {'wait' if told else 'requests wait'}"] if waits else []
        return f"nothing runs, and at the gateway {' and '.join(told) or 'requests found nobody'}"
    if case.policy == "forecast_band" and case.base == "forecast":
        at = f"at its {case.level_of:.0%} quantile from {case.lead_s:.0f} s ahead on"
        return f"demand reaches {_plain(case.work)} {unit} {at}"
    if case.base == "forecast":
        share = 1.0 if case.source == "GPUs" else case.load / case.capacity
        most = (
            f", which it raises by {AHEAD - 1.0:.0%} at most" if case.work < (1.0 - 1e-9) * share * case.ahead else ""
        )
        return (
            f"the forecast's {case.level_of:.0%} quantile reaches {_plain(case.ahead)} {unit} from {case.lead_s:.0f} s "
            f"ahead on, more than the headroom over recent work{most}"
        )
    if case.base == "headroom" and case.policy == "shadow_selection":
        return f"{case.led.leader if case.led else 'the leader'} provides for {_plain(case.work)} {unit}"
    if case.base == "headroom":
        kept = f", as in the last {case.keep_s / 60:.0f} min" if case.work > case.level + case.z * case.spread else ""
        spreads = f"spreads by {_plain(case.spread)}"
        if case.policy == "lead_time_headroom":
            spreads += f" ({case.lead_minutes} min later it is off by {_plain(case.error)})"
        return (
            f"work is at a level of {_plain(case.level)} {unit} and {spreads}: to serve "
            f"{share_words(case.share)} of it within {_plain(case.delay_s)} s, {_plain(case.z)} spreads are added and "
            f"so {_plain(case.work)} {unit} provided for{kept}"
        )
    if case.policy == "shadow_selection" and case.base == "present":
        return f"demand with its backlog takes {_plain(case.work)} {unit} now, or did in the last two minutes"
    if case.policy == "lead_time_headroom" and case.base == "present":
        return (
            f"demand with its backlog, to be gone in {DRAIN_S:.0f} s, takes {_plain(case.work)} {unit} now "
            f"or did in the last {HELD_S:.0f} s"
        )
    young = f" (known for {case.minutes} min only)" if case.base == "start" else ""
    return f"demand with its backlog is {_plain(case.work)} {unit} now{young}"


def _is_unmeasured(case: Case) -> bool:
    """Whether a workload is woken of whose work nothing is known."""
    return case.demand.replicas == 0 and not case.needed >= 1.0


def _sum(case: Case) -> str:
    if case.granted == 0:
        return ""
    if _is_unmeasured(case):
        return "what work that is will be seen once it is served"
    share = f"{case.load / case.capacity:.0%} of " if case.load != case.capacity else ""
    unit = "GPUs" if case.source == "GPUs" else "work/s"
    needed = f"{case.needed:.0f}" if math.isfinite(case.needed) else "an unknown number of"
    return f"at {share}{_plain(case.capacity)} {unit} each that takes {needed} replicas, {case.demand.replicas} run"


def _limit(case: Case) -> str:
    if case.granted > case.wanted:
        return f"{case.granted} for now: only so many are taken away at once"
    if case.granted < case.wanted:
        return f"{case.granted} for now: only {case.demand.ready} are ready, and more follow when these are"
    if math.isfinite(case.needed) and case.wanted != case.needed and case.granted > 0 and not _is_unmeasured(case):
        return f"its limits are {case.spec.min_replicas} to {case.spec.max_replicas}"
    return ""


def _lead(case: Case) -> str:
    """Say which policy leads, at what cost, and how far the next is behind."""
    led = case.led
    if led is None or case.granted == 0:
        return ""
    next_one = f"{led.after} is next, {led.dearer:.1%} dearer"
    if led.dearer < 0.0:
        next_one = f"{led.after} would have cost {-led.dearer:.1%} less, which does not pay for a change yet"
    since = datetime.fromtimestamp(led.since_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"of {led.tried} policies tried in the shadow since {since} {led.leader} leads: with it "
        f"{_plain(100 * led.late)} % of recent work would have been late, a second of which counts as "
        f"{_plain(led.price)} replica-seconds; {next_one}"
    )


def _doubt(case: Case) -> str:
    """Say that the forecast had no say, and why."""
    if case.view.trusted or case.granted == 0 or case.policy == "shadow_selection":
        return ""
    off = _worst(case)
    if off is None or abs(off[0] - off[1]) <= case.tolerance:
        return "its forecast has no say yet"
    return f"its forecast has no say: {off[0]:.0%} of the past lay below its {off[1]:.0%} line"


def _worst(case: Case) -> tuple[float, float] | None:
    """Coverage and level of the upper line that covers least as it should, or ``None`` where that is not known."""
    pairs = [(float(c), x) for c, x in zip(case.view.coverage, case.levels, strict=True) if x > 0.5]
    known = [pair for pair in pairs if math.isfinite(pair[0])]
    return max(known, key=lambda pair: abs(pair[0] - pair[1]), default=None)


def _hpa(case: Case) -> str:
    if case.hpa <= 0:
        return ""
    return f"HPA at {case.spec.target_utilization:.0%} would have {case.hpa:.0f}"


def _confidence(case: Case) -> float:
    if case.base == "forecast":
        miss = float(np.abs(case.view.coverage - np.array(case.levels, np.float32)).max())
        return max(0.0, min(1.0, 1.0 - miss)) if math.isfinite(miss) else 0.5
    if case.policy == "forecast_band":
        return 0.5
    return 0.5 + 0.45 * min(1.0, case.minutes / WELL_KNOWN)


def _proof(case: Case) -> tuple[Evidence, ...]:
    view, demand = case.view, case.demand
    unit = "{gpu}" if case.source == "GPUs" else "{work}/s"
    found = [
        Evidence(name="demand", value=view.observed, unit=unit),
        Evidence(name="demand.needed", value=case.work, unit=unit, record=case.forecast_id),
        Evidence(name=f"capacity_per_replica.{case.source}", value=case.capacity, unit=unit),
        Evidence(name="lead_time", value=case.lead_s, unit="s"),
    ]
    if case.policy in ("slo_headroom", "lead_time_headroom") and math.isfinite(case.level):
        found += [
            Evidence(name="headroom.level", value=case.level, unit=unit),
            Evidence(name="headroom.spread", value=case.spread, unit=unit),
            Evidence(name="headroom.z", value=case.z),
        ]
    if case.policy != "forecast_band" and math.isfinite(case.level):
        found += [
            Evidence(name="objective.attainment", value=case.share),
            Evidence(name="objective.delay", value=case.delay_s, unit="s"),
        ]
    if case.policy == "lead_time_headroom" and math.isfinite(case.level):
        found += [
            Evidence(name="headroom.lead_time", value=60.0 * case.lead_minutes, unit="s"),
            Evidence(name="headroom.error", value=case.error, unit=unit),
        ]
    if case.policy == "shadow_selection":
        found += _shadows(case.led)
    else:
        found += _forecast(case, unit)
    if demand.queued:
        found.append(Evidence(name="queued", value=demand.queued, unit="{request}"))
    found += _answers(demand, case.spec)
    if case.hpa > 0:
        found.append(Evidence(name="hpa.replicas", value=case.hpa, unit="{replica}"))
    return tuple(e for e in found if math.isfinite(e.value))


def _answers(demand: Demand, spec: WorkloadSpec) -> list[Evidence]:
    """How the replicas answer, beside what was promised."""
    objective = spec.objective
    first_s, next_s = (objective.first_token_s, objective.token_s) if objective is not None else (None, None)
    told = (
        ("gen_ai.server.time_to_first_token", demand.first_token_s, first_s, "s"),
        ("gen_ai.server.time_to_first_token.p99", demand.first_token_p99_s, None, "s"),
        ("gen_ai.server.time_per_output_token", demand.output_token_s, next_s, "s"),
        ("kv_cache.utilization", demand.kv_cache, None, "1"),
    )
    return [Evidence(name=n, value=v, expected=e, unit=u) for n, v, e, u in told if v is not None]


def _shadows(led: Led | None) -> list[Evidence]:
    if led is None:
        return []
    return [
        Evidence(name="shadow.policies", value=float(led.tried), unit="{policy}"),
        Evidence(name="shadow.since", value=led.since_s, unit="s"),
        Evidence(name=f"shadow.leader.{led.leader}", value=led.hours, unit="h"),
        Evidence(name="shadow.late", value=led.late),
        Evidence(name="shadow.price", value=led.price),
        Evidence(name=f"shadow.dearer.{led.after}", value=led.dearer),
    ]


def _forecast(case: Case, unit: str) -> list[Evidence]:
    view = case.view
    found = [Evidence(name="forecast.trusted", value=float(view.trusted), record=case.forecast_id)]
    if view.trusted:
        found.append(Evidence(name="forecast.level", value=case.level_of, record=case.forecast_id))
        found.append(Evidence(name="forecast.ahead", value=case.ahead, unit=unit, record=case.forecast_id))
        largest = sorted(view.weights.items(), key=lambda item: (-item[1], item[0]))[:NAMED_EXPERTS]
        found += [Evidence(name=f"forecast.weight.{k}", value=v, record=case.forecast_id) for k, v in largest]
    elif (off := _worst(case)) is not None:
        found.append(Evidence(name="forecast.coverage", value=off[0], expected=off[1], record=case.forecast_id))
    return found


def share_words(share: float) -> str:
    """A share as people write promises: 99 %, 99.9 %."""
    return f"{round(100 * share, 4):g} %"


def _plain(value: float) -> str:
    """Three significant digits, never an exponent: ``19,700`` or ``0.0123``."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"
