"""Merges the demand of a workload over node lanes."""

from collections.abc import Mapping, Sequence
from operator import attrgetter

from flyball_contracts.records import Demand, Features, Usage

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
    total, *others = found
    replicas = [d.replicas for d in found]
    means = (_mean(values, replicas) for values in zip(*map(_averaged, found), strict=True))
    progress, latency_s, step_s, first_token_s, output_token_s, kv_cache = means
    for d in others:
        total = Demand(
            workload=d.workload,
            replicas=total.replicas + d.replicas,
            ready=total.ready + d.ready,
            devices=total.devices + d.devices,
            work_rate=plus(total.work_rate, d.work_rate),
            request_rate=plus(total.request_rate, d.request_rate),
            queued=plus(total.queued, d.queued),
            active=plus(total.active, d.active),
            utilization_sum=plus(total.utilization_sum, d.utilization_sum),
            power_w=plus(total.power_w, d.power_w),
            progress=progress,
            tokens_in_rate=plus(total.tokens_in_rate, d.tokens_in_rate),
            tokens_out_rate=plus(total.tokens_out_rate, d.tokens_out_rate),
            failed=plus(total.failed, d.failed),
            latency_s=latency_s,
            usage=_most([d.usage for d in found if d.usage is not None]),
            clocks=(*total.clocks, *d.clocks),
            step_s=step_s,
            first_token_s=first_token_s,
            first_token_p99_s=_larger(total.first_token_p99_s, d.first_token_p99_s),
            output_token_s=output_token_s,
            kv_cache=kv_cache,
            features=_mean_features([f for f in (total.features, d.features) if f is not None]),
        )
    return total


def plus(a: float | None, b: float | None) -> float | None:
    """Sum of the known values; ``None`` if there are none."""
    if a is None:
        return b
    return a if b is None else a + b


def _larger(a: float | None, b: float | None) -> float | None:
    return max((x for x in (a, b) if x is not None), default=None)


def _mean(values: Sequence[float | None], replicas: list[int]) -> float | None:
    """Return the mean of a field over the replicas of the lanes that know it."""
    first: float | None = None
    total, weight = 0.0, 0
    for x, n in zip(values, replicas, strict=True):
        if x is not None:
            first = float(x) if first is None else first
            total, weight = total + float(x) * n, weight + n
    return total / weight if weight > 0 else first


def _most(found: list[Usage]) -> Usage | None:
    """Return the most of each; kills are added."""
    if len(found) < 2:
        return found[0] if found else None
    largest = {
        name: max((x for u in found if (x := getattr(u, name)) is not None), default=None)
        for name in Usage.__struct_fields__
    }
    return Usage(**largest | {"oom": sum(known) if (known := [u.oom for u in found if u.oom is not None]) else None})


def _mean_features(found: list[Features]) -> Features | None:
    """Return the mean over the devices of two lanes; only the first if their numbers of features differ."""
    if len(found) < 2 or len(found[0].values) != len(found[1].values):
        return found[0] if found else None
    a, b = found
    steps = [f.step_s for f in found if f.step_s is not None]
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
