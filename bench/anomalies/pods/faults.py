"""Faults as the series of a pod show them, and those that are counters and events put beside the series."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU

Floats = NDArray[np.float32]
TICK_S = 57.0
MEMORY_BYTES = 48 << 30
MEMORY_MIB = MEMORY_BYTES / 2**20
DUTY, MEMORY, HOST_MEMORY = range(3)
COUNTERS = {
    "ECC storm": GPU.column("hw.errors{type=corrected}"),
    "NVLink errors": GPU.column("nvidia.gpu.nvlink.errors"),
}


class Tick(NamedTuple):
    """What the agents of a tick say.

    Series [N, 3], latencies in s [N], counters by metric of a pod, port errors, events, who is silent.
    """

    x: Floats
    latency_s: Floats
    counters: dict[tuple[int, int], float]
    ports: dict[int, float]
    events: list[tuple[int, str]]
    silent: set[int]


Change = Callable[[Tick, Floats, int, float, np.random.Generator], None]
"""Changes a tick, given the series as they were when the fault began, the pod, and the seconds since then."""


class Fault(NamedTuple):
    """One kind of fault, and whether the real series carry it."""

    name: str
    carried: bool
    draw: Callable[[np.random.Generator], Change]


def _hang(random: np.random.Generator) -> Change:
    del random

    def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
        tick.x[pod, DUTY] = 100.0
        tick.latency_s[pod] = np.nan

    return change


def _slow(least: float, most: float) -> Callable[[np.random.Generator], Change]:
    def draw(random: np.random.Generator) -> Change:
        factor = math.exp(random.uniform(math.log(least), math.log(most)))

        def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
            tick.x[pod, DUTY] = min(100.0, float(tick.x[pod, DUTY]) * factor)
            tick.latency_s[pod] *= factor

        return change

    return draw


def _leak(random: np.random.Generator) -> Change:
    full_s = float(random.uniform(1200.0, 3600.0))

    def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
        start = first[pod, MEMORY]
        leaked = (MEMORY_MIB - start) * min(1.0, since_s / full_s)
        tick.x[pod, MEMORY] = min(MEMORY_MIB, float(tick.x[pod, MEMORY]) + leaked)

    return change


def _stall(random: np.random.Generator) -> Change:
    def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
        tick.x[pod, DUTY] = 0.0
        tick.latency_s[pod] = np.nan

    return change


def _neighbour(random: np.random.Generator) -> Change:
    taken, factor = float(random.uniform(0.1, 0.4)), float(random.uniform(1.05, 2.0))

    def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
        tick.x[pod, HOST_MEMORY] = min(1.0, float(tick.x[pod, HOST_MEMORY]) + taken * min(1.0, since_s / 300.0))
        tick.x[pod, DUTY] /= factor
        tick.latency_s[pod] *= factor

    return change


def _stuck(random: np.random.Generator) -> Change:
    def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
        tick.x[pod] = first[pod]

    return change


def _lost(random: np.random.Generator) -> Change:
    def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
        tick.x[pod, [DUTY, MEMORY]] = np.nan
        tick.latency_s[pod] = np.nan

    return change


def _lost_with_event(random: np.random.Generator) -> Change:
    event, vanish = _event_of("device_lost")(random), _lost(random)

    def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
        event(tick, first, pod, since_s, noise)
        vanish(tick, first, pod, since_s, noise)

    return change


def _gone(random: np.random.Generator) -> Change:
    def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
        tick.silent.add(pod)

    return change


def _counts(name: str, least: float, most: float) -> Callable[[np.random.Generator], Change]:
    def draw(random: np.random.Generator) -> Change:
        per_s = math.exp(random.uniform(math.log(least), math.log(most)))

        def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
            tick.counters[pod, COUNTERS[name]] = float(noise.poisson(per_s * TICK_S))

        return change

    return draw


def _ports(random: np.random.Generator) -> Change:
    per_s = float(10.0 ** random.uniform(-1.5, 2.5))

    def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
        tick.ports[pod] = float(noise.poisson(per_s * TICK_S))

    return change


def _event_of(kind: str) -> Callable[[np.random.Generator], Change]:
    def draw(random: np.random.Generator) -> Change:
        def change(tick: Tick, first: Floats, pod: int, since_s: float, noise: np.random.Generator) -> None:
            if since_s < 60.0:
                tick.events.append((pod, kind))

        return change

    return draw


FAULTS = (
    Fault("hang: spins at 100 %", True, _hang),
    Fault("fail-slow, 1.1 to 1.5 times", True, _slow(1.1, 1.5)),
    Fault("fail-slow, 2 to 4 times", True, _slow(2.0, 4.0)),
    Fault("memory leak", True, _leak),
    Fault("data stall", True, _stall),
    Fault("noisy neighbour", True, _neighbour),
    Fault("stuck sensor", True, _stuck),
    Fault("GPU lost without a word", True, _lost),
    Fault("GPU and node lost", True, _gone),
    Fault("GPU lost, the agent says so", False, _lost_with_event),
    Fault("ECC storm", False, _counts("ECC storm", 0.1, 20.0)),
    Fault("NVLink errors", False, _counts("NVLink errors", 0.1, 20.0)),
    Fault("network: port errors", False, _ports),
    Fault("thermal: throttled", False, _event_of("throttle")),
    Fault("power brake", False, _event_of("power_brake")),
)
