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

    ``at`` is the step under way since ``since_s``, and ``count`` the rounds that have ended. ``measured`` has the
    devices, and ``problems`` the errors so far. ``seen`` is the number of GPUs.
    """

    def __init__(self, seconds: float, gpus: int, clock: Callable[[], float]) -> None:
        self.seconds, self.gpus, self.clock = seconds, gpus, clock
        self.platform = ""
        self.seen = 0
        self.problems: list[str] = []
        self.measured: tuple[Device, ...] = ()
        self.count = 0
        self._begin("starting jax")

    def run(self) -> None:
        """Run them until the end, or until a step does not end."""
        thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.1)
            if self.clock() - self.since_s > STUCK_S and thread.is_alive():
                self.problems.append(f"{self.at} has not ended after {STUCK_S:g} s")
                return

    def _run(self) -> None:
        try:
            self._rounds()
        except ImportError as error:
            self.problems.append(f"{self.at}: {_line(error)}; {REMEDY}")
        except Exception as error:  # whatever breaks off, the device has not passed
            self.problems.append(f"{self.at}: {_line(error)}")

    def _rounds(self) -> None:
        import jax

        from flyball_cli.burn_in.all_reduce import AllReduce
        from flyball_cli.burn_in.trial import Trial

        devices = cast("list[Any]", jax.local_devices())  # pyright: ignore[reportUnknownMemberType]
        self.platform = str(devices[0].platform)
        self.seen = len(devices) if self.platform != "cpu" else 0
        if self.seen < self.gpus:
            problem = f"{self.gpus} GPUs are to be checked, and jax sees {self.seen}: {REMEDY}, and give it all of them"
            self.problems.append(problem)
            return
        several = len(devices) > 1
        peers = devices[1:] + devices[:1] if several and self.seen else [None] * len(devices)
        began, trials = self.clock(), list[Trial]()
        together: AllReduce | None = None
        while not self.problems and (not self.count or self.clock() - began < self.seconds):
            for i, (device, peer) in enumerate(zip(devices, peers, strict=True)):
                self._begin(f"{self.platform} {i}")
                if not self.count:
                    trials.append(Trial(device))
                self.problems += [f"{self.at}: {one}" for one in trials[i].round(self.count, self.clock, peer)]
                self.measured = tuple(trial.found for trial in trials)
            if several:
                self._begin("a sum over all devices")
                together = together or AllReduce(devices)
                wrong = together.round(self.count)
                self.problems += [f"{self.platform} {i}: {text}" for i, text in wrong.items()]
            self.count += 1

    def _begin(self, step: str) -> None:
        self.since_s, self.at = self.clock(), step


def burn_in(seconds: float, gpus: int = 0, clock: Callable[[], float] = time.monotonic) -> BurnIn:
    """Test all local devices for ``seconds``, at least one round; ``gpus`` is the expected number.

    In each round a device multiplies matrices and fills its memory, moves data from and to the host, and to the next
    device; then all add up numbers. Every result is compared exactly. A device's rates are compared only with those of
    its peers, because no limits hold for every GPU. A step that does not end is an error; :func:`is_stuck` is true
    then. Without ``gpus``, the CPU is tested if jax sees no GPU.
    """
    began, rounds = clock(), Rounds(seconds, gpus, clock)
    rounds.run()
    problems, measured = list(rounds.problems), rounds.measured
    if rounds.seen and not problems:
        problems += slow_ones(measured)
    return BurnIn(
        passed=not problems and rounds.count > 0, problems=tuple(problems), platform=rounds.platform,
        seconds=round(clock() - began, 3), rounds=rounds.count, ids=gpu_ids(len(measured)) if rounds.seen else (),
        devices=tuple(_short(one) for one in measured),
    )  # fmt: skip


def is_stuck() -> bool:
    """Whether a step of a burn-in has not ended: it may keep the process from ending, too."""
    return any(thread.name == THREAD for thread in threading.enumerate())


def slow_ones(devices: tuple[Device, ...]) -> list[str]:
    """Problem texts for devices that are much slower than their peers."""
    found: list[str] = []
    for name in RATES:
        known = {i: value for i, one in enumerate(devices) if (value := getattr(one, name)) is not None}
        for i, value in known.items():
            usual = median([other for j, other in known.items() if j != i] or [0.0])
            if value < SLOW * usual:
                found.append(f"gpu {i}: {name} is {value:.3g}, and {usual:.3g} the median of the others")
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
