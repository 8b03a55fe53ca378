"""A burn-in of this machine's devices: computation, memory and transfers; see :func:`burn_in`."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from statistics import median
from typing import Any, cast

from msgspec.structs import replace

from flyball_contracts.burn_in import BurnIn, Device

SLOW = 0.5
"""A device below this share of the median of its peers is unhealthy."""
RATES = ("matmul_flops", "memory_bytes_per_s", "to_device_bytes_per_s", "from_device_bytes_per_s", "peer_bytes_per_s")
REMEDY = "pip install 'flyball[worker]' 'jax[cuda12]'"


def burn_in(seconds: float, gpus: int = 0, clock: Callable[[], float] = time.monotonic) -> BurnIn:
    """Test all local devices for ``seconds``, at least one round; ``gpus`` is the expected number.

    In each round a device multiplies matrices and fills its memory, moves data from and to the host, and to the next
    device; every result is compared exactly. A device's rates are compared only with those of its peers, because no
    limits hold for every GPU. Without ``gpus``, the CPU is tested if jax sees no GPU.
    """
    try:
        import jax

        from flyball_cli.burn_in.trial import Trial

        devices = cast("list[Any]", jax.local_devices())  # pyright: ignore[reportUnknownMemberType]
    except ImportError:
        return BurnIn(passed=False, problems=(f"jax is not installed: {REMEDY}",))
    except RuntimeError as error:
        return BurnIn(passed=False, problems=(f"jax finds no device: {_line(error)}",))
    platform = str(devices[0].platform)
    seen = len(devices) if platform != "cpu" else 0
    if seen < gpus:
        problem = f"{gpus} GPUs are to be checked, and jax sees {seen}: {REMEDY}, and give it all of them"
        return BurnIn(passed=False, problems=(problem,), platform=platform)
    trials = [Trial(device) for device in devices]
    problems: list[str] = []
    began, rounds = clock(), 0
    while not problems and (not rounds or clock() - began < seconds):
        for i, trial in enumerate(trials):
            peer = devices[(i + 1) % len(devices)] if len(devices) > 1 and seen else None
            try:
                found = trial.round(rounds, clock, peer)
            except (RuntimeError, MemoryError) as error:
                found = [_line(error)]
            problems += [f"{platform} {i}: {one}" for one in found]
        rounds += 1
    measured = tuple(trial.found for trial in trials)
    if seen:
        problems += slow_ones(measured)
    return BurnIn(
        passed=not problems, problems=tuple(problems), platform=platform, seconds=round(clock() - began, 3),
        rounds=rounds, ids=gpu_ids(len(devices)) if seen else (), devices=tuple(_short(one) for one in measured),
    )  # fmt: skip


def slow_ones(devices: tuple[Device, ...]) -> list[str]:
    """Problem texts for devices that are much slower than their peers."""
    found: list[str] = []
    for name in RATES:
        known = [(i, value) for i, one in enumerate(devices) if (value := getattr(one, name)) is not None]
        usual = median(value for _, value in known) if len(known) > 1 else 0.0
        found += [
            f"gpu {i}: {name} is {value:.3g}, and {usual:.3g} the median of all"
            for i, value in known
            if value < SLOW * usual
        ]
    return found


def gpu_ids(count: int) -> tuple[str, ...]:
    """Ids of this process's GPUs; empty if they are unknown or are not ``count``."""
    named = [one for one in os.environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if one.startswith("GPU-")]
    if len(named) == count:
        return tuple(named)
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    command = [program, "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        listing = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    listed = [line.strip() for line in listing.splitlines() if line.startswith("GPU-")]
    return tuple(listed) if len(listed) == count else ()


def _short(device: Device) -> Device:
    """Rates with four digits, for a short report."""
    known = {name: value for name in RATES if (value := getattr(device, name)) is not None}
    return replace(device, **{name: float(f"{value:.4g}") for name, value in known.items()})


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
