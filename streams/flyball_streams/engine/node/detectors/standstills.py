"""Detects training that stands still: it made steps, and now makes none while its processes hold their GPUs.

Ranks that wait for data or a file system run no kernel, so nothing spins as in :mod:`~flyball_models.anomaly.hang`. A
workload stands still when all its ranks of this lane are idle, or do anything but steps, for longer than a limit that
follows from its own pauses: checkpoints and evaluations are pauses, too, and end. A pause in which the profiles see a
checkpoint or a start is no standstill. The rule and its constants are ours.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.metrics import GPU, WORKLOAD
from flyball_streams.engine.node.tenancy import STEP, UTILIZATION, Tenancy

STEPS = WORKLOAD.column("flyball.workload.steps")
MEMORY = GPU.column("hw.gpu.memory.utilization")
IDLE, HOLDS = 0.05, 0.02
"""Utilization below which a rank is idle, and share of the memory above which a process holds the GPU."""
WARM_S, YOUNG_S = 120.0, 1800.0
"""A workload is judged after ``WARM_S`` of work; it is young until ``YOUNG_S`` of work, when its pauses are known."""
LEAST_S, LEAST_YOUNG_S = 20.0, 60.0
"""Least limits of idle ranks if steps are reported or the load is periodic; the second is for a young workload."""
UNTIMED_S, UNTIMED_YOUNG_S = 300.0, 900.0
"""The same limits if no steps are reported and the load is not periodic."""
BUSY_S = 600.0
"""Least limit of busy ranks that report no step: an evaluation takes no longer, or is known after the first time."""
OF_PAUSES, OF_STEPS = 2.0, 4.0
"""The limit is at least so many times the longest pause, and the step time or period."""
LEARNED, LEAST_LEARNED_S = 2.0, 120.0
"""A pause counts as at most so many times the longest before it: one hang does not hide the next."""
MEMORY_S = 86_400.0
"""Time constant with which the longest pause is forgotten."""
SINCE_TICKS = 3.0


class Standstill(NamedTuple):
    """Index of a workload, its slots, for how long it has stood still and the limit, s, and whether its ranks idle."""

    workload: int
    slots: list[int]
    since_s: float
    limit_s: float
    idle: bool


class Course(NamedTuple):
    """Times by workload, all [W], in s.

    Work seen, idleness and time without a step up to now, the longest of either that ended, and the reported step time,
    NaN if none ever was.
    """

    worked_s: NDArray[np.float64]
    idle_s: NDArray[np.float64]
    stepless_s: NDArray[np.float64]
    pause_s: NDArray[np.float64]
    gap_s: NDArray[np.float64]
    step_s: NDArray[np.float64]


def _unseen(count: int) -> Course:
    return Course(*(np.zeros(count) for _ in Course._fields))._replace(step_s=np.full(count, np.nan))


class Standstills:
    """Follows the workloads of one cell, in the order of ``workloads``; ``devices`` are the slots they held last.

    ``counted`` [W] is which workloads of the tenancy counted a step in the last window; none, if none is training.
    """

    def __init__(self) -> None:
        self.counted = np.zeros(0, bool)
        self.workloads: list[str] = []
        self.devices: list[list[int]] = []
        self.course = _unseen(0)
        self._pages: list[NDArray[np.float32]] = []
        self._tenancy: Tenancy | None = None

    def note(self, pages: NDArray[np.float32]) -> None:
        """Keep the workload rows of a tick, ``float32[allocations, metrics]``; they must not change any more."""
        self._pages.append(pages)

    def forget_pages(self) -> None:
        """Drop the kept rows: they belong to other allocations from now on."""
        self._pages = []

    def step(
        self,
        values: NDArray[np.float32],
        mask: NDArray[np.bool_],
        tenancy: Tenancy,
        trains: NDArray[np.bool_],
        periods_s: NDArray[np.float32],
        pauses: Callable[[list[int]], bool],
        elapsed_s: float,
        period_s: float,
    ) -> Iterator[Standstill]:
        """Workloads that stand still after a window of ``elapsed_s``, in ticks of ``period_s``.

        ``values`` float32[n, metrics] are means of the window, ``mask`` [n] is which devices were seen, ``trains`` [W]
        which workloads are training. ``periods_s`` [capacity] are the periods of loads, NaN if unknown, and ``pauses``
        returns whether some slots write a checkpoint or start.
        """
        self._follow(tenancy)
        pages, self._pages = self._pages, []
        n, count = len(mask), len(tenancy.workloads)
        self.counted = np.zeros(count, bool)
        if not trains.any():
            return
        owner = tenancy.workload_of_slot[:n]
        held = owner >= 0
        use, memory = values[:, UTILIZATION], values[:, MEMORY]
        with np.errstate(invalid="ignore"):
            seen = mask & np.isfinite(use) & held
            active = seen & (use >= IDLE)
            holds = seen & ~(memory < HOLDS)
        here, busy, holding = (np.bincount(owner[which], minlength=count) for which in (seen, active, holds))
        self.counted, stepped, step_s = _steps(pages, tenancy, count)
        idle, gone = (here > 0) & (busy == 0) & ~self.counted, (here > 0) & (holding == 0)
        works = (here > 0) & ~idle & ~gone
        old = self.course
        fade = np.exp(-elapsed_s / MEMORY_S)
        idle_s = np.where(idle, old.idle_s + elapsed_s, np.where(here > 0, 0.0, old.idle_s))
        reports = np.isfinite(old.step_s) | np.isfinite(step_s)
        stepless_s = np.where(stepped | ~reports, 0.0, old.stepless_s + np.where(here > 0, elapsed_s, 0.0))
        pause, gap = (
            np.minimum(now, np.maximum(LEARNED * longest, least))
            for now, longest, least in (
                (old.idle_s, old.pause_s, LEAST_LEARNED_S),
                (old.stepless_s, old.gap_s, BUSY_S),
            )
        )
        pause_s = np.where(works, np.maximum(old.pause_s * fade, pause), old.pause_s)
        gap_s = np.where(stepped, np.maximum(old.gap_s * fade, gap), old.gap_s)
        worked_s = np.where(gone, 0.0, old.worked_s + np.where(works, elapsed_s, 0.0))
        self.course = Course(
            worked_s,
            np.where(gone, 0.0, idle_s),
            np.where(gone, 0.0, stepless_s),
            pause_s,
            gap_s,
            np.where(gone, np.nan, np.where(np.isfinite(step_s), step_s, old.step_s)),
        )
        warm = trains & (worked_s >= WARM_S)
        late = warm & ((self.course.idle_s >= LEAST_S) | (self.course.stepless_s >= BUSY_S))
        for index in np.flatnonzero(late).tolist():
            slots = np.flatnonzero(owner == index)
            found = self._judged(index, slots.tolist(), periods_s[slots], SINCE_TICKS * period_s)
            if found is not None and not pauses(found.slots):
                yield found

    def _judged(
        self, index: int, slots: list[int], periods_s: NDArray[np.float32], least_s: float
    ) -> Standstill | None:
        """Compare a workload with its limits."""
        worked_s, idle_s, stepless_s, pause_s, gap_s, step_s = (float(x[index]) for x in self.course)
        known = periods_s[np.isfinite(periods_s)]
        every_s = step_s if step_s == step_s else float(np.median(known)) if 2 * len(known) > len(slots) else np.nan
        young = worked_s < YOUNG_S
        timed, untimed = (LEAST_YOUNG_S, UNTIMED_YOUNG_S) if young else (LEAST_S, UNTIMED_S)
        least_s = max(least_s, untimed if every_s != every_s else max(timed, OF_STEPS * every_s))
        limit_s = max(least_s, OF_PAUSES * pause_s)
        if idle_s >= limit_s:
            return Standstill(index, slots, idle_s, limit_s, True)
        limit_s = max(BUSY_S, least_s, OF_PAUSES * gap_s)
        if stepless_s >= limit_s and not young:
            return Standstill(index, slots, stepless_s, limit_s, False)
        return None

    def _follow(self, tenancy: Tenancy) -> None:
        """Take over the workloads of another tenancy; one that got or lost devices is reset, but keeps its pauses.

        Whether it reports steps has to be observed again, too.
        """
        if tenancy is self._tenancy:
            return
        self._tenancy = tenancy
        owner = tenancy.workload_of_slot
        (held,) = np.nonzero(owner >= 0)
        order = held[np.argsort(owner[held], kind="stable")]
        ends = np.cumsum(tenancy.devices)[:-1]
        devices: list[list[int]] = [part.tolist() for part in np.split(order, ends)] if len(tenancy.devices) else []
        place = {name: i for i, name in enumerate(self.workloads)}
        course, old = _unseen(len(tenancy.workloads)), self.course
        for i, name in enumerate(tenancy.workloads):
            j = place.get(name, -1)
            if j < 0:
                continue
            for new, before in zip(course, old, strict=True):
                new[i] = before[j]
            if devices[i] != self.devices[j]:
                course.worked_s[i] = course.idle_s[i] = course.stepless_s[i] = 0.0
                course.step_s[i] = np.nan
        self.workloads, self.devices, self.course = tenancy.workloads, devices, course

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {
            "workloads": self.workloads,
            "devices": self.devices,
            "course": list(self.course),
            "pages": [np.array(page[:, [STEPS, STEP]]) for page in self._pages],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Replace the state by that of a snapshot."""
        self.workloads, self.devices = list(state["workloads"]), [list(slots) for slots in state["devices"]]
        self.course = Course(*(np.array(x) for x in state["course"]))
        self._tenancy = None
        self._pages = []
        for kept in state["pages"]:
            page = np.full((len(kept), len(WORKLOAD)), np.nan, np.float32)
            page[:, [STEPS, STEP]] = kept
            self._pages.append(page)


def _steps(
    pages: list[NDArray[np.float32]], tenancy: Tenancy, count: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
    """Whether each workload counted a step, or showed one, and its step time, s, NaN if unknown; all [W].

    An agent keeps a step time until the job has been silent for minutes, so it shows a step only without a count.
    """
    counted, stepped, step_s = np.zeros(count, bool), np.zeros(count, bool), np.full(count, np.nan)
    if not pages or not len(tenancy.workload_of_allocation):
        return counted, stepped, step_s
    shown = np.array([page[:, [STEPS, STEP]] for page in pages])
    steps, times = shown[..., 0], shown[..., 1]
    owner = tenancy.workload_of_allocation
    with np.errstate(invalid="ignore"):
        made, timed = steps > 0.0, times > 0.0
    counted[owner[made.any(axis=0)]] = True
    stepped[owner[(made | (np.isnan(steps) & timed)).any(axis=0)]] = True
    longest = np.fmax.reduce(np.where(timed, times, np.float32(np.nan)), axis=0)
    reported = np.isfinite(longest)
    np.fmax.at(step_s, owner[reported], longest[reported].astype(np.float64))
    return counted, stepped, step_s
