"""Processes on a device, and their use of it."""

from ctypes import byref, c_uint, c_ulonglong
from math import nan
from typing import NamedTuple

from flyball_collectors.nvml.calls.abi import NO_MEMORY_VALUE, ProcessInfo, ProcessSample
from flyball_collectors.nvml.calls.gate import Gate
from flyball_collectors.nvml.calls.library import INSUFFICIENT_SIZE, NOT_FOUND

_TRIES = 3  # processes may start between the call that counts them and the one that lists them
_COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"
_MPS = "nvmlDeviceGetMPSComputeRunningProcesses_v3"  # clients of an MPS server are not in the list above
_GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses_v3"
_SELDOM = (_MPS, _GRAPHICS)
_SHARES = "nvmlDeviceGetProcessUtilization"
_PATIENCE = 10  # reads of a busy device without a new sample until the clock is taken to have been set back


class Process(NamedTuple):
    """One process on one device, as of the last read.

    ``device`` is the UUID of a GPU or of a MIG instance, ``pid`` counts in the agent's PID namespace.
    ``sm_share`` is the mean share of time (0 to 1) that it kept the SMs busy since the read before, NaN where that
    is unknown: on the first read, on MIG instances, and while the driver has no new sample. ``memory_bytes`` is NaN
    for a process that used the device since the read before and is not in the driver's list any more.
    """

    device: str
    pid: int
    sm_share: float
    memory_bytes: float


class ProcessReader:
    """Reads the processes of one GPU, or of one MIG instance."""

    def __init__(self, gate: Gate, device: str) -> None:
        self.running: int | None = None
        self._gate = gate
        self._device = device
        self._count = c_uint()
        self._count_at = byref(self._count)
        self._infos = (ProcessInfo * 16)()
        self._samples = (ProcessSample * 16)()
        self._after = c_ulonglong()
        self._started = False
        self._empty = 0
        self._inhabited: set[str] = set()

    def read(self, busy: float, *, detail: bool) -> list[Process]:
        """Current processes, and those that ended since the previous read; ``busy`` is the device's own utilisation.

        Sets ``running`` to the number of processes that compute, ``None`` if unknown. The lists of MPS and of graphics,
        which are mostly empty, are read with the ``detail``, and each time while they are not empty.
        """
        memory = self._memory(_COMPUTE)
        self.running = None if memory is None else len(memory)
        for name in _SELDOM:
            if not (detail or name in self._inhabited):
                continue
            more = self._memory(name) or {}
            (self._inhabited.add if more else self._inhabited.discard)(name)
            for pid, held in more.items():
                memory = {} if memory is None else memory
                if pid not in memory and name == _MPS:
                    self.running = (self.running or 0) + 1
                memory[pid] = max(memory.get(pid, held), held)  # both lists have all that the process holds
        shares = self._shares(idle=busy == 0)
        if shares is None:
            return [Process(self._device, pid, nan, held) for pid, held in (memory or {}).items()]
        found = [Process(self._device, pid, shares.get(pid, 0.0), held) for pid, held in (memory or {}).items()]
        gone = [pid for pid in shares if memory is None or pid not in memory]
        return found + [Process(self._device, pid, shares[pid], nan) for pid in gone]

    def _memory(self, name: str) -> dict[int, float] | None:
        if name in self._gate.never:
            return None
        for _ in range(_TRIES):
            self._count.value = len(self._infos)
            if self._gate.call(name, self._count_at, self._infos):
                return {
                    int(info.pid): nan if info.memory == NO_MEMORY_VALUE else float(info.memory)
                    for info in self._infos[: self._count.value]
                }
            if name in self._gate.never or self._gate.code != INSUFFICIENT_SIZE:
                return None
            self._infos = (ProcessInfo * (2 * self._count.value + 5))()
        return None

    def _shares(self, *, idle: bool) -> dict[int, float] | None:
        """Mean share by process; ``None`` if unknown.

        The driver only lists active processes of its own sampling period, so that no result means no work on an idle
        device, and no new sample on a busy one. A request for all processes would average over minutes.
        """
        for _ in range(_TRIES):
            self._count.value = len(self._samples)
            if self._gate.call(_SHARES, self._samples, self._count_at, self._after):
                return self._mean()
            if _SHARES in self._gate.never:
                return None
            if self._gate.code == NOT_FOUND:
                self._started = True
                if idle:
                    return {}
                self._note_empty()
                return None
            if self._gate.code != INSUFFICIENT_SIZE:
                return None
            self._samples = (ProcessSample * (2 * self._count.value + 5))()
        return None

    def _mean(self) -> dict[int, float] | None:
        found: dict[int, list[int]] = {}
        newest_us = after_us = self._after.value
        for sample in self._samples[: self._count.value]:
            if sample.time_us > after_us:
                newest_us = max(newest_us, sample.time_us)
                if sample.sm <= 100:  # else garbage: a driver has been seen to report thousands of percent
                    found.setdefault(int(sample.pid), []).append(sample.sm)
        self._after.value = newest_us
        started, self._started = self._started, True
        if newest_us > after_us:
            self._empty = 0
        else:
            self._note_empty()
        return {pid: sum(percents) / len(percents) / 100 for pid, percents in found.items()} if started else None

    def _note_empty(self) -> None:
        """Start over after many reads without a new sample: the next one only sets the start time."""
        self._empty += 1
        if self._empty >= _PATIENCE:
            self._after.value = self._empty = 0
            self._started = False
