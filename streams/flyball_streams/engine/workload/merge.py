"""Merges the demand of a workload over node lanes."""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import attrgetter

from flyball_contracts.records import Demand, Features, Usage

_summed = attrgetter(
    "replicas", "ready", "devices", "work_rate", "request_rate", "queued", "active", "utilization_sum", "power_w",
    "tokens_in_rate", "tokens_out_rate", "failed",
)  # fmt: skip
_averaged = attrgetter("progress", "latency_s", "step_s", "first_token_s", "output_token_s", "kv_cache")


def merge(parts: Mapping[str, Mapping[str, Demand]]) -> dict[str, Demand]:
    """Return one demand for each workload, by name, from demands by source and workload.

    Sources are added in the order of their names, because float addition depends on it; a value that no source knows
    stays unknown.
    """
    total: dict[str, Demand] = {}
    shared: dict[str, list[Demand]] = {}
    for _, demands in sorted(parts.items()):
        for workload in total.keys() & demands.keys():
            shared.setdefault(workload, [total[workload]]).append(demands[workload])
        total |= demands
    total |= {workload: _sum(found) for workload, found in shared.items()}
    return dict(sorted(total.items()))


def _sum(found: list[Demand]) -> Demand:
    """Sum over lanes; their devices' features and their replicas' times and shares are averaged."""
    first, *others = map(_summed, found)
    sums = list(first)
    for values in others:
        sums = [b if a is None else a if b is None else a + b for a, b in zip(sums, values, strict=True)]
    replicas, ready, devices, work_rate, request_rate, queued, active, utilization_sum, power_w, *rest = sums
    tokens_in_rate, tokens_out_rate, failed = rest
    weights = [d.replicas for d in found]
    means = (_mean(values, weights) for values in zip(*map(_averaged, found), strict=True))
    progress, latency_s, step_s, first_token_s, output_token_s, kv_cache = means
    return Demand(
        workload=found[0].workload,
        replicas=replicas,
        ready=ready,
        devices=devices,
        work_rate=work_rate,
        request_rate=request_rate,
        queued=queued,
        active=active,
        utilization_sum=utilization_sum,
        power_w=power_w,
        progress=progress,
        tokens_in_rate=tokens_in_rate,
        tokens_out_rate=tokens_out_rate,
        failed=failed,
        latency_s=latency_s,
        usage=_most([d.usage for d in found if d.usage is not None]),
        clocks=tuple(chain.from_iterable(d.clocks for d in found)),
        latencies=tuple(chain.from_iterable(d.latencies for d in found)),
        step_s=step_s,
        first_token_s=first_token_s,
        first_token_p99_s=max((d.first_token_p99_s for d in found if d.first_token_p99_s is not None), default=None),
        output_token_s=output_token_s,
        kv_cache=kv_cache,
        features=_mean_features([d.features for d in found if d.features is not None]),
    )


def plus(a: float | None, b: float | None) -> float | None:
    """Sum of the known values; ``None`` if there are none."""
    if a is None:
        return b
    return a if b is None else a + b


def _mean(values: Sequence[float | None], replicas: list[int]) -> float | None:
    """Return the mean of a field over the replicas of the lanes that know it."""
    if values.count(None) == len(values):
        return None
    first: float | None = None
    total, weight = 0.0, 0
    for x, n in zip(values, replicas, strict=True):
        if x is not None:
            first = float(x) if first is None else first
            total, weight = total + float(x) * n, weight + n
    return total / weight if weight > 0 else first


def _most(found: list[Usage]) -> Usage | None:
    """Return the maximum of each field; kills are added up."""
    if len(found) < 2:
        return found[0] if found else None
    largest = {
        name: max((x for u in found if (x := getattr(u, name)) is not None), default=None)
        for name in Usage.__struct_fields__
    }
    return Usage(**largest | {"oom": sum(known) if (known := [u.oom for u in found if u.oom is not None]) else None})


def _mean_features(found: list[Features]) -> Features | None:
    """Return the mean over the devices of all lanes."""
    return reduce(_mean_of_two, found) if found else None


def _mean_of_two(a: Features, b: Features) -> Features:
    """Return the mean over the devices of two lanes; only the first if their numbers of features differ."""
    if len(a.values) != len(b.values):
        return a
    steps = [f.step_s for f in (a, b) if f.step_s is not None]
    return Features(
        devices=a.devices + b.devices,
        seen_s=max(a.seen_s, b.seen_s),
        values=tuple(
            (y if x is None else x)
            if x is None or y is None
            else (x * a.devices + y * b.devices) / max(a.devices + b.devices, 1)
            for x, y in zip(a.values, b.values, strict=True)
        ),
        step_s=max(steps, default=None),
    )
