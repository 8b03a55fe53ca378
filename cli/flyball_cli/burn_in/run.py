"""A burn-in of this machine's devices: computation, memory and transfers; see :func:`burn_in`."""

import os
import shutil
import subprocess
import threading
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
STUCK_S = 300.0
"""A step that takes longer does not end: compiling takes seconds."""
THREAD = "burn-in"


class Rounds:
    """The rounds of a burn-in, in a thread of their own: a GPU that hangs must not keep the result back.

    ``at`` is the step under way, by its device, since ``since_s``; ``measured`` has the devices and ``problems`` the
    errors so far.
    """

    def __init__(self, devices: list[Any], seconds: float, clock: Callable[[], float]) -> None:
        self.devices, self.seconds, self.clock = devices, seconds, clock
        self.platform = str(devices[0].platform)
        self.problems: list[str] = []
        self.measured: tuple[Device, ...] = ()
        self.count = 0
        self.at = ""
        self.since_s = clock()

    def run(self) -> bool:
        """Run them; returns whether they have ended."""
        thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            if self.clock() - self.since_s > STUCK_S and thread.is_alive():
                self.problems.append(f"{self.at} has not ended after {STUCK_S:g} s")
                return False
        return True

    def _run(self) -> None:
        from flyball_cli.burn_in.all_reduce import AllReduce
        from flyball_cli.burn_in.trial import Trial

        devices, began, several = self.devices, self.clock(), len(self.devices) > 1
        peers = self.devices[1:] + self.devices[:1] if several and self.platform != "cpu" else [None] * len(devices)
        trials: list[Trial] = []
        together: AllReduce | None = None
        while not self.problems and (not self.count or self.clock() - began < self.seconds):
            try:
                for i, (device, peer) in enumerate(zip(devices, peers, strict=True)):
                    self._begin(i)
                    if not self.count:
                        trials.append(Trial(device))
                    self.problems += [f"{self.at}: {one}" for one in trials[i].round(self.count, self.clock, peer)]
                    self.measured = tuple(trial.found for trial in trials)
                if several:
                    self._begin(None)
                    together = together or AllReduce(devices)
                    wrong = together.round(self.count)
                    self.problems += [f"{self.platform} {i}: {text}" for i, text in wrong.items()]
            except (RuntimeError, MemoryError) as error:
                self.problems.append(f"{self.at}: {_line(error)}")
            self.count += 1

    def _begin(self, device: int | None) -> None:
        self.at = f"{self.platform} {device}" if device is not None else "a sum over all devices"
        self.since_s = self.clock()


def burn_in(seconds: float, gpus: int = 0, clock: Callable[[], float] = time.monotonic) -> BurnIn:
    """Test all local devices for ``seconds``, at least one round; ``gpus`` is the expected number.

    In each round a device multiplies matrices and fills its memory, moves data from and to the host, and to the next
    device; then all add up numbers. Every result is compared exactly. A device's rates are compared only with those of
    its peers, because no limits hold for every GPU. A step that does not end is an error; :func:`is_stuck` is true
    then. Without ``gpus``, the CPU is tested if jax sees no GPU.
    """
    try:
        import jax

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
    began, rounds = clock(), Rounds(devices, seconds, clock)
    ended = rounds.run()
    problems, measured = list(rounds.problems), rounds.measured
    if seen and ended:
        problems += slow_ones(measured)
    return BurnIn(
        passed=not problems, problems=tuple(problems), platform=platform, seconds=round(clock() - began, 3),
        rounds=rounds.count, ids=gpu_ids(len(devices)) if seen else (), devices=tuple(_short(one) for one in measured),
    )  # fmt: skip


def is_stuck() -> bool:
    """Whether a step of a burn-in has not ended: it may keep the process from ending, too."""
    return any(thread.name == THREAD for thread in threading.enumerate())


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
