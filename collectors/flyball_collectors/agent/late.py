"""GPUs that cannot be measured yet: NVML is tried until it answers."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from flyball_collectors.base import Collector
from flyball_collectors.kernel import text_of
from flyball_collectors.nvml import Absent
from flyball_contracts.ids import NS_PER_S

_LOG = logging.getLogger(__name__)
_NVIDIA = "0x10de"
_DISPLAYS = "0x03"  # class of graphics cards and accelerators
_PASSED_ON = "vfio-pci"  # driver of devices that belong to a guest


class LateGpus:
    """Opens NVML every ``period_s`` in a thread, because its start may take long or hang.

    It opens NVML, and logs why there are no GPUs, only on machines with NVIDIA GPUs or their driver. ``absent`` is why
    NVML could not be opened, ``None`` if that was not tried yet. ``opened`` opens it, and ``root`` is the host's root.
    """

    def __init__(
        self, absent: Absent | None, opened: Callable[[], Collector | Absent], root: Path, period_s: float
    ) -> None:
        self._opened = opened
        self._root = root
        self._period_ns = round(period_s * NS_PER_S)
        self._tried_ns: int | None = None
        self._lock = threading.Lock()
        self._found: Collector | None = None
        self._opening = self._dropped = False
        self._reason = ""
        self._expected = _has_driver(root) or _has_gpus(root)
        self._now = False
        if absent is not None:
            self._warn(absent)

    def try_now(self) -> None:
        """Open it at the next poll, on any machine."""
        self._now = not self._opening

    def poll(self, passed_ns: int) -> Collector | None:
        """The collector once NVML is open, else ``None``; ``passed_ns`` only rises. Cheap enough for each tick."""
        if self._tried_ns is None:
            self._tried_ns = passed_ns
        if self._found is None and (self._now or passed_ns - self._tried_ns >= self._period_ns):
            self._tried_ns = passed_ns
            self._expected = self._expected or _has_driver(self._root)
            if self._expected or self._now:
                self._try()
            self._now = False
        return self._found

    def drop(self) -> None:
        """Close the collector if it is not used, now or once it is open."""
        with self._lock:
            self._dropped = True
            found, self._found = self._found, None
        if found is not None:
            found.close()

    def _try(self) -> None:
        if self._opening:
            self._warn(
                Absent("a start of NVML does not come back", "see dmesg; nvidia-smi must work for the same user")
            )
            return
        self._opening = True
        try:
            threading.Thread(target=self._open, name="nvml-open", daemon=True).start()
        except RuntimeError as error:  # the limit of threads; there may be room in a minute
            self._opening = False
            self._warn(Absent(str(error), "raise the limit of tasks of the agent's unit"))

    def _open(self) -> None:
        try:
            opened = self._opened()
        except Exception as error:  # the next try may succeed
            opened = Absent(f"unexpected {type(error).__name__}: {error}", "see nvidia-smi")
        with self._lock:
            self._opening = False
            if isinstance(opened, Absent):
                self._warn(opened)
                return
            if not self._dropped:
                self._found = opened
                return
        opened.close()

    def _warn(self, absent: Absent) -> None:
        if self._expected and absent.reason != self._reason:
            self._reason = absent.reason
            _LOG.warning(
                "no GPU is measured, though this machine has some or the driver: %s; %s. NVML is tried every %g s",
                *absent,
                self._period_ns / NS_PER_S,
            )


def _has_driver(root: Path) -> bool:
    return (root / "proc/driver/nvidia").is_dir()


def _has_gpus(root: Path) -> bool:
    """Whether a PCI device is an NVIDIA GPU that was not handed to a guest."""
    return any(
        text_of(folder / "vendor").strip() == _NVIDIA
        and text_of(folder / "class").startswith(_DISPLAYS)
        and (folder / "driver").resolve().name != _PASSED_ON
        for folder in (root / "sys/bus/pci/devices").glob("*")
    )
