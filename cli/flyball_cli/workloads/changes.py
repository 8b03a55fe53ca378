"""Changes that a file makes on the topic, and their display."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec

from flyball_contracts.declared.document import plain, written
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import WorkloadSpec


class Change(NamedTuple):
    """One changed workload; ``before`` is ``None`` if it is new or comes back."""

    before: WorkloadSpec | None
    after: WorkloadSpec


def changes_to(wanted: Iterable[WorkloadSpec], known: Mapping[str, WorkloadSpec]) -> list[Change]:
    """Records to send so that the topic matches the file, each newer than the one it replaces."""
    found: list[Change] = []
    for spec in wanted:
        last = known.get(spec.workload)
        before = None if last is None or last.removed else last
        if before is None or plain(before) != plain(spec):
            found.append(Change(before, _newer(spec, last)))
    return found


def removals_of(names: Sequence[str], known: Mapping[str, WorkloadSpec], now_ns: int) -> list[Change]:
    """Records to remove workloads; unknown or already removed ones are left out."""
    living = [known[name] for name in names if name in known and not known[name].removed]
    return [Change(spec, _newer(msgspec.structs.replace(spec, removed=True, time_ns=now_ns), spec)) for spec in living]


def lines_of(change: Change) -> list[str]:
    """The change as text, a heading and one line for each field."""
    before, after = change
    name = after.workload
    if after.removed:
        return [f"- {name} (removed)"]
    if before is None:
        fields = {key: value for key, value in _flat(written(after)).items() if key != "workload"}
        return [f"+ {name} (new)", *(f"    {key}: {_shown(value)}" for key, value in fields.items())]
    old, new = _flat(plain(before)), _flat(plain(after))
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)]
    return [f"~ {name}", *(f"    {key}: {_shown(old.get(key))} -> {_shown(new.get(key))}" for key in keys)]


def warnings_of(spec: WorkloadSpec) -> list[str]:
    """Warnings about valid but probably unintended values."""
    found: list[str] = []
    if spec.deadline_ns is not None and spec.duration_s is not None:
        left_s = (spec.deadline_ns - spec.time_ns) / NS_PER_S
        if left_s <= 0:
            found.append("deadline: it has passed")
        elif left_s < spec.duration_s:
            found.append(f"deadline: {left_s:.0f} s are left, and duration_s is {spec.duration_s:.0f}")
        if not spec.interruptible:
            found.append("deadline: the job is not put off to cleaner or cheaper hours; set interruptible: true")
    if spec.kind == "inference" and spec.objective is None:
        found.append(
            "objective: none; sizing then keeps work from waiting for more than 5 s as long as that is worth idle GPUs"
        )
    if spec.restart_hung_after_s is not None:
        if spec.kind not in ("training", "batch"):
            found.append(
                f"restart_hung_after_s: hangs are looked for in training and batch jobs, and this is {spec.kind}"
            )
        elif spec.restart_hung_after_s <= spec.cold_start_s:
            found.append(
                f"restart_hung_after_s: {spec.restart_hung_after_s:g} s is no more than cold_start_s, which is "
                f"{spec.cold_start_s:g}: a slow start could be taken for a hang"
            )
    if spec.max_replicas == 0:
        found.append("max_replicas: 0 lets nothing run")
    return [f"{spec.workload}: {text}" for text in found]


def _newer(spec: WorkloadSpec, last: WorkloadSpec | None) -> WorkloadSpec:
    """A time at which the record is the newest of its key on the topic, even if another clock is ahead."""
    if last is None or spec.time_ns > last.time_ns:
        return spec
    return msgspec.structs.replace(spec, time_ns=last.time_ns + 1)


def _flat(data: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            found |= _flat(cast("dict[str, Any]", value), f"{path}{key}.")
        else:
            found[path + key] = value
    return found


def _shown(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)
