"""Merges the demand of a workload over node lanes."""

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain
from operator import attrgetter

from msgspec.structs import replace

from flyball_contracts.records import Demand, Features, Usage

_summed = attrgetter(
    "replicas", "ready", "devices", "work_rate", "request_rate", "queued", "active", "utilization_sum", "power_w",
    "tokens_in_rate", "tokens_out_rate", "failed",
)  # fmt: skip
_averaged = attrgetter("progress", "latency_s", "step_s", "first_token_s", "output_token_s", "kv_cache")
_rest = attrgetter("usage", "features", "first_token_p99_s", "clocks", "latencies")
_NO_MEANS, _NO_REST = (None,) * 6, (None, None, None, (), ())


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
    sums = list(_summed(found[0]))
    for values in map(_summed, found[1:]):
        sums = [b if a is None else a if b is None else a + b for a, b in zip(sums, values, strict=True)]
    replicas, ready, devices, work_rate, request_rate, queued, active, utilization_sum, power_w, *others = sums
    tokens_in_rate, tokens_out_rate, failed = others
    total = Demand(
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
        tokens_in_rate=tokens_in_rate,
        tokens_out_rate=tokens_out_rate,
        failed=failed,
    )
    averaged, rest = list(map(_averaged, found)), list(map(_rest, found))
    if averaged.count(_NO_MEANS) < len(found):
        weights = [d.replicas for d in found]
        means = (_mean(values, weights) for values in zip(*averaged, strict=True))
        progress, latency_s, step_s, first_token_s, output_token_s, kv_cache = means
        total = replace(
            total,
            progress=progress,
            latency_s=latency_s,
            step_s=step_s,
            first_token_s=first_token_s,
            output_token_s=output_token_s,
            kv_cache=kv_cache,
        )
    if rest.count(_NO_REST) < len(found):  # most of it is sent once a minute
        usage, features, first_token_p99_s, clocks, latencies = zip(*rest, strict=True)
        total = replace(
            total,
            usage=_most([u for u in usage if u is not None]),
            clocks=tuple(chain.from_iterable(clocks)),
            latencies=tuple(chain.from_iterable(latencies)),
            first_token_p99_s=max((p99 for p99 in first_token_p99_s if p99 is not None), default=None),
            features=_mean_features([f for f in features if f is not None]),
        )
    return total


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
