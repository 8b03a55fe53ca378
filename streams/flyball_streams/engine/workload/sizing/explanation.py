"""Explanation of a change of replicas: its reason, confidence and evidence, and the number HPA would request."""

import math
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np

from flyball_contracts.records import Demand, Evidence, WorkloadSpec
from flyball_models.sizing.lead_time_headroom import DRAIN_S, HELD_S
from flyball_models.sizing.limits import AHEAD
from flyball_streams.engine.workload.forecast.forecaster import View
from flyball_streams.engine.workload.sizing.policy import Leader

NAMED_EXPERTS = 3
"""Number of experts that a proposal names, the largest weights first; the forecast record has all."""
WELL_KNOWN = 60
"""Minutes of history after which headroom has full confidence."""


class Facts(NamedTuple):
    """The facts behind a change.

    ``needed`` are replicas before the limits on changes, ``granted`` after them. ``work`` is the needed work and
    ``load`` the work per replica; ``ahead`` is the forecast at its quantile ``level_of``, NaN if it is not trusted, and
    ``tolerance`` the allowed error of its coverage. ``level``, ``spread`` and ``z`` make the headroom; its maximum over
    ``keep_s`` counts, and its ``z`` follows the ``share`` of work that must be in time. ``error`` is the deviation of
    the need from the level ``lead_minutes`` before, which is part of the spread under ``lead_time_headroom``. ``hpa``
    is 0 without enough data, and ``led`` is the leader under ``shadow_selection``.
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
    led: Leader | None


def explained(facts: Facts) -> tuple[str, float, tuple[Evidence, ...]]:
    """Reason, confidence and evidence of a change."""
    clauses = (_basis(facts), _sum(facts), _limit(facts), _lead(facts), _doubt(facts), _hpa(facts))
    return "; ".join(filter(None, clauses)), _confidence(facts), _proof(facts)


def _basis(facts: Facts) -> str:
    unit = "busy GPUs" if facts.source == "GPUs" else "work/s"
    if facts.granted == 0:
        return f"nothing was asked for during {_plain(facts.idle_s)} s"
    if facts.demand.replicas == 0:
        rate, waits = facts.demand.request_rate or 0.0, facts.demand.queued or 0.0
        clauses = [f"{_plain(rate)} requests/s arrive"] if rate else []
        clauses += [f"{_plain(waits)} {'wait' if clauses else 'requests wait'}"] if waits else []
        return f"nothing runs, and at the gateway {' and '.join(clauses) or 'requests found nobody'}"
    if facts.policy == "forecast_band" and facts.base == "forecast":
        at = f"at its {facts.level_of:.0%} quantile from {facts.lead_s:.0f} s ahead on"
        return f"demand reaches {_plain(facts.work)} {unit} {at}"
    if facts.base == "forecast":
        share = 1.0 if facts.source == "GPUs" else facts.load / facts.capacity
        most = (
            f", which it raises by {AHEAD - 1.0:.0%} at most" if facts.work < (1.0 - 1e-9) * share * facts.ahead else ""
        )
        return (
            f"the forecast's {facts.level_of:.0%} quantile reaches {_plain(facts.ahead)} {unit} from "
            f"{facts.lead_s:.0f} s ahead on, more than the headroom over recent work{most}"
        )
    if facts.base == "headroom" and facts.policy == "shadow_selection":
        return f"{facts.led.leader if facts.led else 'the leader'} provides for {_plain(facts.work)} {unit}"
    if facts.base == "headroom":
        kept = (
            f", as in the last {facts.keep_s / 60:.0f} min" if facts.work > facts.level + facts.z * facts.spread else ""
        )
        spreads = f"spreads by {_plain(facts.spread)}"
        if facts.policy == "lead_time_headroom":
            spreads += f" ({facts.lead_minutes} min later it is off by {_plain(facts.error)})"
        return (
            f"work is at a level of {_plain(facts.level)} {unit} and {spreads}: to serve "
            f"{share_words(facts.share)} of it within {_plain(facts.delay_s)} s, {_plain(facts.z)} spreads are added "
            f"and so {_plain(facts.work)} {unit} provided for{kept}"
        )
    if facts.policy == "shadow_selection" and facts.base == "present":
        return f"demand with its backlog takes {_plain(facts.work)} {unit} now, or did in the last two minutes"
    if facts.policy == "lead_time_headroom" and facts.base == "present":
        return (
            f"demand with its backlog, to be gone in {DRAIN_S:.0f} s, takes {_plain(facts.work)} {unit} now "
            f"or did in the last {HELD_S:.0f} s"
        )
    young = f" (known for {facts.minutes} min only)" if facts.base == "start" else ""
    return f"demand with its backlog is {_plain(facts.work)} {unit} now{young}"


def _is_unmeasured(facts: Facts) -> bool:
    """Whether a workload starts from zero while its work is unknown."""
    return facts.demand.replicas == 0 and not facts.needed >= 1.0


def _sum(facts: Facts) -> str:
    if facts.granted == 0:
        return ""
    if _is_unmeasured(facts):
        return "what work that is will be seen once it is served"
    share = f"{facts.load / facts.capacity:.0%} of " if facts.load != facts.capacity else ""
    unit = "GPUs" if facts.source == "GPUs" else "work/s"
    needed = f"{facts.needed:.0f}" if math.isfinite(facts.needed) else "an unknown number of"
    return f"at {share}{_plain(facts.capacity)} {unit} each that takes {needed} replicas, {facts.demand.replicas} run"


def _limit(facts: Facts) -> str:
    if facts.granted > facts.wanted:
        return f"{facts.granted} for now: only so many are taken away at once"
    if facts.granted < facts.wanted:
        return f"{facts.granted} for now: only {facts.demand.ready} are ready, and more follow when these are"
    if math.isfinite(facts.needed) and facts.wanted != facts.needed and facts.granted > 0 and not _is_unmeasured(facts):
        return f"its limits are {facts.spec.min_replicas} to {facts.spec.max_replicas}"
    return ""


def _lead(facts: Facts) -> str:
    """Clause that names the leading policy, its cost, and the distance of the next best."""
    led = facts.led
    if led is None or facts.granted == 0:
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


def _doubt(facts: Facts) -> str:
    """Clause that gives the reason why the forecast was not used."""
    if facts.view.trusted or facts.granted == 0 or facts.policy == "shadow_selection":
        return ""
    off = _worst(facts)
    if off is None or abs(off[0] - off[1]) <= facts.tolerance:
        return "its forecast has no say yet"
    return f"its forecast has no say: {off[0]:.0%} of the past lay below its {off[1]:.0%} line"


def _worst(facts: Facts) -> tuple[float, float] | None:
    """Coverage and level of the upper quantile whose coverage is furthest from its level, or ``None`` if unknown."""
    pairs = [(float(c), x) for c, x in zip(facts.view.coverage, facts.levels, strict=True) if x > 0.5]
    known = [pair for pair in pairs if math.isfinite(pair[0])]
    return max(known, key=lambda pair: abs(pair[0] - pair[1]), default=None)


def _hpa(facts: Facts) -> str:
    if facts.hpa <= 0:
        return ""
    return f"HPA at {facts.spec.target_utilization:.0%} would have {facts.hpa:.0f}"


def _confidence(facts: Facts) -> float:
    if facts.base == "forecast":
        miss = float(np.abs(facts.view.coverage - np.array(facts.levels, np.float32)).max())
        return max(0.0, min(1.0, 1.0 - miss)) if math.isfinite(miss) else 0.5
    if facts.policy == "forecast_band":
        return 0.5
    return 0.5 + 0.45 * min(1.0, facts.minutes / WELL_KNOWN)


def _proof(facts: Facts) -> tuple[Evidence, ...]:
    view, demand = facts.view, facts.demand
    unit = "{gpu}" if facts.source == "GPUs" else "{work}/s"
    found = [
        Evidence(name="demand", value=view.observed, unit=unit),
        Evidence(name="demand.needed", value=facts.work, unit=unit, record=facts.forecast_id),
        Evidence(name=f"capacity_per_replica.{facts.source}", value=facts.capacity, unit=unit),
        Evidence(name="lead_time", value=facts.lead_s, unit="s"),
    ]
    if facts.policy in ("slo_headroom", "lead_time_headroom") and math.isfinite(facts.level):
        found += [
            Evidence(name="headroom.level", value=facts.level, unit=unit),
            Evidence(name="headroom.spread", value=facts.spread, unit=unit),
            Evidence(name="headroom.z", value=facts.z),
        ]
    if facts.policy != "forecast_band" and math.isfinite(facts.level):
        found += [
            Evidence(name="objective.attainment", value=facts.share),
            Evidence(name="objective.delay", value=facts.delay_s, unit="s"),
        ]
    if facts.policy == "lead_time_headroom" and math.isfinite(facts.level):
        found += [
            Evidence(name="headroom.lead_time", value=60.0 * facts.lead_minutes, unit="s"),
            Evidence(name="headroom.error", value=facts.error, unit=unit),
        ]
    if facts.policy == "shadow_selection":
        found += _shadows(facts.led)
    else:
        found += _forecast(facts, unit)
    if demand.queued:
        found.append(Evidence(name="queued", value=demand.queued, unit="{request}"))
    found += _answers(demand, facts.spec)
    if facts.hpa > 0:
        found.append(Evidence(name="hpa.replicas", value=facts.hpa, unit="{replica}"))
    return tuple(e for e in found if math.isfinite(e.value))


def _answers(demand: Demand, spec: WorkloadSpec) -> list[Evidence]:
    """Evidence of the replicas' latencies, compared with the objective."""
    objective = spec.objective
    first_s, next_s = (objective.first_token_s, objective.token_s) if objective is not None else (None, None)
    clauses = (
        ("gen_ai.server.time_to_first_token", demand.first_token_s, first_s, "s"),
        ("gen_ai.server.time_to_first_token.p99", demand.first_token_p99_s, None, "s"),
        ("gen_ai.server.time_per_output_token", demand.output_token_s, next_s, "s"),
        ("kv_cache.utilization", demand.kv_cache, None, "1"),
    )
    return [Evidence(name=n, value=v, expected=e, unit=u) for n, v, e, u in clauses if v is not None]


def _shadows(led: Leader | None) -> list[Evidence]:
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


def _forecast(facts: Facts, unit: str) -> list[Evidence]:
    view = facts.view
    found = [Evidence(name="forecast.trusted", value=float(view.trusted), record=facts.forecast_id)]
    if view.trusted:
        found.append(Evidence(name="forecast.level", value=facts.level_of, record=facts.forecast_id))
        found.append(Evidence(name="forecast.ahead", value=facts.ahead, unit=unit, record=facts.forecast_id))
        largest = sorted(view.weights.items(), key=lambda item: (-item[1], item[0]))[:NAMED_EXPERTS]
        found += [Evidence(name=f"forecast.weight.{k}", value=v, record=facts.forecast_id) for k, v in largest]
    elif (off := _worst(facts)) is not None:
        found.append(Evidence(name="forecast.coverage", value=off[0], expected=off[1], record=facts.forecast_id))
    return found


def share_words(share: float) -> str:
    """A share as an objective is written: 99 %, 99.9 %."""
    return f"{round(100 * share, 4):g} %"


def _plain(value: float) -> str:
    """Three significant digits, without an exponent: ``19,700`` or ``0.0123``."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"
