r"""Divides the devices among their users: arrays in, arrays out.

In a period of :math:`T` seconds a device is busy for :math:`B`. A process's part of :math:`B` is its share of SM time;
where the shares add up to more than :math:`B`, as on time-sliced GPUs and under MPS, they are scaled down to it, and
processes without a known share get equal parts of the rest. The remaining time, and that of processes without a known
owner, is unattributed; :math:`T - B` is idle.

Of the energy :math:`E` the idle part is :math:`\min(E, P_0 (T - B))` with the idle power :math:`P_0`, or
:math:`E (T - B) / T` while that is unknown; the rest is divided by SM time.

A GPU that is divided into MIG instances is the sum of them: instance :math:`i` with the part :math:`w_i` of the
GPU's SMs has :math:`w_i B_i` of its time, and the corresponding part of its energy; the slices that are in no instance
are idle.

So for each device ``attributed + unattributed + idle`` is the whole, or all three are NaN.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_LEAST = 1e-9  # of the period; a shorter busy time counts as none, as energy cannot be divided by it


class Devices(NamedTuple):
    """D devices in a period; NaN where unknown.

    ``parent`` is the row of an instance's GPU, -1 for a GPU; ``part`` the instance's share of its SMs, 1 for a GPU.
    ``idle_w`` is the power without work.
    """

    busy_s: Floats
    energy_j: Floats
    memory_used: Floats
    memory_limit: Floats
    idle_w: Floats
    parent: Ints
    part: Floats


class Uses(NamedTuple):
    """P processes on devices: row of the device, owner (-1: unknown), share of SM time 0 to 1, bytes."""

    device: Ints
    owner: Ints
    sm_share: Floats
    memory: Floats


class Shares(NamedTuple):
    """Parts of each device, ``[D, 3]``: attributed, unattributed, idle or free; and of each owner, ``[owners]``.

    An instance's energy is its part of its parent's. An owner's SM time on an instance counts in proportion to the
    instance's part of the GPU, so that owners add up to GPUs. An owner's value is NaN where one of its devices' is
    unknown.
    """

    sm_s: Floats
    energy_j: Floats
    memory: Floats
    owner_sm_s: Floats
    owner_energy_j: Floats
    owner_memory: Floats
    owner_processes: Ints


def divide(devices: Devices, uses: Uses, owners: int, period_s: float) -> Shares:
    """Divide the devices in a period among ``owners`` owners; negative or infinite values count as unknown."""
    busy_s, energy_j, memory_used, memory_limit, idle_w = (_true(values) for values in devices[:5])
    devices = Devices(busy_s, energy_j, memory_used, memory_limit, idle_w, devices.parent, devices.part)
    uses = uses._replace(sm_share=_true(uses.sm_share), memory=_true(uses.memory))
    count = len(devices.busy_s)
    is_instance = devices.parent >= 0
    is_parent = np.zeros(count, bool)
    is_parent[devices.parent[is_instance]] = True
    part = _parts(devices, is_instance)
    known = uses.owner >= 0

    busy, used_s = _busy(devices.busy_s, uses, is_parent, period_s)
    attributed = _sum(uses.device[known], used_s[known], count)
    sm = _three(attributed, busy, np.full(count, period_s))
    # A parent's time is its instances', weighted; slices that are in none of them are idle.
    weighted = np.zeros((count, 2))
    np.add.at(weighted, devices.parent[is_instance], part[is_instance, None] * sm[is_instance, :2])
    sm[is_parent, :2] = weighted[is_parent]
    sm[is_parent, 2] = period_s - weighted[is_parent].sum(axis=1)
    busy[is_parent] = np.minimum(weighted[is_parent].sum(axis=1), period_s)

    per_busy_s, energy = _energy(devices, sm, busy, part, period_s)
    used_j = used_s * per_busy_s[uses.device]

    memory, used_bytes = _memory(devices, uses, known, is_parent)
    mine = uses.owner[known]
    return Shares(
        sm,
        energy,
        memory,
        _sum(mine, (used_s * part[uses.device])[known], owners),
        _sum(mine, used_j[known], owners),
        _sum(mine, np.nan_to_num(used_bytes[known]), owners),
        np.bincount(mine, minlength=owners).astype(np.int64),
    )


def _parts(devices: Devices, is_instance: NDArray[np.bool_]) -> Floats:
    """Part of each device in its GPU; the instances of one GPU are scaled to at most the whole of it."""
    total = _sum(devices.parent[is_instance], devices.part[is_instance], len(devices.part))
    whole = np.maximum(total, 1.0)[devices.parent]
    return np.where(is_instance, devices.part / whole, 1.0)


def _busy(busy_s: Floats, uses: Uses, is_parent: NDArray[np.bool_], period_s: float) -> tuple[Floats, Floats]:
    """Busy time of each device, and each process's part of it; if unknown, the sum of the processes' own values."""
    count = len(busy_s)
    share_s = np.clip(uses.sm_share, 0.0, 1.0) * period_s
    unknown = np.isnan(share_s)
    without = np.bincount(uses.device[unknown], minlength=count)
    reported = _sum(uses.device, np.nan_to_num(share_s), count)
    all_report = (without == 0) & (np.bincount(uses.device, minlength=count) > 0)
    busy = np.where(np.isnan(busy_s) & all_report, reported, busy_s)
    busy = np.clip(np.where(is_parent, np.nan, busy), 0.0, period_s)
    busy[busy < _LEAST * period_s] = 0.0
    scale = np.divide(busy, reported, out=np.ones(count), where=reported > busy)
    left = np.maximum(busy - reported * scale, 0.0) / np.maximum(without, 1)
    used = np.where(unknown, left[uses.device], share_s * scale[uses.device])
    used[np.isnan(busy)[uses.device]] = np.nan
    return busy, used


def _energy(devices: Devices, sm: Floats, busy: Floats, part: Floats, period_s: float) -> tuple[Floats, Floats]:
    """Joules for each second that a device is busy, and the three parts of each device's energy."""
    idle_s = period_s - busy
    by_power = np.minimum(devices.energy_j, devices.idle_w * idle_s)
    by_time = devices.energy_j * (idle_s / period_s)
    idle = np.where(busy <= 0, devices.energy_j, np.where(np.isnan(devices.idle_w), by_time, by_power))
    per_busy_s = np.divide(devices.energy_j - idle, busy, out=np.zeros_like(busy), where=~(busy <= 0))
    per_idle_s = np.divide(idle, idle_s, out=np.zeros_like(busy), where=~(idle_s <= 0))
    owner = np.where(devices.parent >= 0, devices.parent, np.arange(len(busy)))
    per_busy_s, per_idle_s = per_busy_s[owner] * part, per_idle_s[owner] * part
    energy = np.stack([sm[:, 0] * per_busy_s, sm[:, 1] * per_busy_s, sm[:, 2] * per_idle_s], axis=1)
    # The idle part of a whole GPU is what is left, so that the three are the whole to the last bit.
    whole = devices.parent < 0
    energy[whole, 2] = np.maximum(devices.energy_j[whole] - energy[whole, 0] - energy[whole, 1], 0.0)
    return per_busy_s, _all_or_none(energy)


def _memory(
    devices: Devices, uses: Uses, known: NDArray[np.bool_], is_parent: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Attributed, unattributed and free bytes of each device, and the bytes of each process."""
    count = len(devices.busy_s)
    limit = devices.memory_limit
    used = np.where(devices.memory_used > limit, limit, devices.memory_used)
    reported = _sum(uses.device, np.nan_to_num(uses.memory), count)
    scale = np.divide(used, reported, out=np.ones(count), where=reported > used)
    mine = uses.memory * scale[uses.device]
    attributed = _sum(uses.device[known], np.nan_to_num(mine[known]), count)
    instances = devices.parent >= 0
    below = _sum(devices.parent[instances], attributed[instances], count)
    attributed = np.where(is_parent, np.minimum(below + attributed, used), attributed)
    return _three(attributed, used, limit), mine


def _three(attributed: Floats, used: Floats, whole: Floats) -> Floats:
    """Attributed, remaining use, and the rest; ``[D, 3]``."""
    attributed = np.minimum(attributed, used)
    return _all_or_none(np.stack([attributed, used - attributed, whole - used], axis=1))


def _true(values: Floats) -> Floats:
    return np.where(np.isfinite(values) & (values >= 0), values, np.nan)


def _all_or_none(parts: Floats) -> Floats:
    parts[np.isnan(parts).any(axis=1)] = np.nan
    return parts


def _sum(index: Ints, values: Floats, count: int) -> Floats:
    return np.bincount(index, values, count).astype(np.float64)
