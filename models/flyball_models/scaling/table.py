"""All policies by kind, and their common entry point."""

from collections.abc import Callable

from flyball_models.scaling import band, dynamo, headroom, hpa, kpa, lead_time_headroom, shadow_selection, static
from flyball_models.scaling.base import Floats, Observation, Policy
from flyball_models.scaling.compile import compiled, kept, sources

KINDS = (
    "static",
    "hpa",
    "keda",
    "kpa",
    "kpa_held",
    "dynamo",
    "follow",
    "oracle",
    "engine",
    "headroom",
    "lead_time_headroom",
    "shadow_selection",
    "hpa_load",
    "hpa_queue",
)

# Compiled functions call each other by global name.
_static, _hpa, _keda, _kpa, _held, _dynamo = static.step, hpa.step, hpa.step_keda, kpa.step, kpa.step_held, dynamo.step
_follow, _oracle, _engine = band.step_follow, band.step_oracle, band.step_engine
_headroom, _lead, _shadow = headroom.step, lead_time_headroom.step, shadow_selection.step
_load, _queue = hpa.step_load, hpa.step_queue


def number(policy: Policy) -> int:
    """Index of the policy's kind in :data:`KINDS`; raises ``ValueError`` for an unknown one."""
    if policy.kind not in KINDS:
        raise ValueError(f"{policy.name}: there is no policy kind {policy.kind!r}; known: {', '.join(KINDS)}")
    return KINDS.index(policy.kind)


@compiled
def chosen(kind: int, state: Floats, seen: Observation, knobs: Floats) -> float:
    """Return the desired replicas of a policy of `kind`: the entry point for other compiled code, which inlines it."""
    if kind == 0:
        return _static(state, seen, knobs)
    if kind == 1:
        return _hpa(state, seen, knobs)
    if kind == 2:
        return _keda(state, seen, knobs)
    if kind == 3:
        return _kpa(state, seen, knobs)
    if kind == 4:
        return _held(state, seen, knobs)
    if kind == 5:
        return _dynamo(state, seen, knobs)
    if kind == 6:
        return _follow(state, seen, knobs)
    if kind == 7:
        return _oracle(state, seen, knobs)
    if kind == 8:
        return _engine(state, seen, knobs)
    if kind == 9:
        return _headroom(state, seen, knobs)
    if kind == 10:
        return _lead(state, seen, knobs)
    if kind == 11:
        return _shadow(state, seen, knobs)
    if kind == 12:
        return _load(state, seen, knobs)
    return _queue(state, seen, knobs)


def _build(stamp: int) -> Callable[[int, Floats, Observation, Floats], float]:
    @kept
    def desired(kind: int, state: Floats, seen: Observation, knobs: Floats) -> float:
        """Return the desired replicas of a policy of `kind`; see :mod:`flyball_models.scaling.base`."""
        _ = stamp  # part of the key under which compiled code is kept
        return chosen(kind, state, seen, knobs)

    return desired


desired = _build(sources())
