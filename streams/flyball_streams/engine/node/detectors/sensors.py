"""Detects sensors that are stuck, and metrics that are no longer reported though the agent of their device lives.

A temperature or a power that repeats one exact value while the load of its device changes is not measured. It is a sign
of the device, and the other detectors do not see the value while it lasts. Devices are looked at once a minute, which
costs next to nothing. The rules and constants are ours.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Evidence, Symptom, Tick
from flyball_models import grow
from flyball_streams.engine.node.profile import Profiles
from flyball_streams.engine.node.table import SubjectTable
from flyball_streams.engine.node.window import Means
from flyball_streams.engine.packing import arrays, like, wiped

STUCK, MISSING = "stuck_sensor", "missing_metric"
SENSORS = ("hw.temperature{sensor=gpu}", "hw.power")
COLUMNS = [GPU.column(key) for key in SENSORS]
EVERY_S = 60.0
STUCK_S, LEAST_MOVES = 600.0, 3
"""A sensor is stuck after this time at one value, if it took so many other values before."""
LOAD_MOVES, SETTLES_S = 0.25, 300.0
"""Change of the load, a share of the time with a kernel in the mean of minutes, that either sensor follows. That mean
still follows an earlier change for the second time after a sensor moved, so it does not count until then."""
KNOWN_S, LOST_S = 600.0, 600.0
"""A metric is missing after the second time if it was reported for the first."""
REPEAT_S, MISSING_REPEAT_S = 600.0, 21_600.0
_NAMED = 3


class State(NamedTuple):
    """``last`` [N, 2], ``still_s`` and ``moves`` of both sensors; the ``least`` and ``most`` load since either settled.

    ``known_s`` and ``lost_s`` [N, metrics] are how long a metric was reported, and has not been.
    """

    last: NDArray[np.float32]
    still_s: NDArray[np.float32]
    moves: NDArray[np.float32]
    least: NDArray[np.float32]
    most: NDArray[np.float32]
    known_s: NDArray[np.float32]
    lost_s: NDArray[np.float32]


def _unseen(n: int) -> State:
    zero, far = np.zeros((n, len(COLUMNS)), np.float32), np.full((n, len(COLUMNS)), np.inf, np.float32)
    never = np.zeros((n, len(GPU)), np.float32)
    return State(np.full_like(zero, np.nan), zero, zero.copy(), far, -far, never, never.copy())


class Sensors:
    """Looks at the devices of one cell; ``reported`` is the time of the last symptom by detector and device, ns."""

    def __init__(self, capacity: int, phase: int) -> None:
        self.model = _unseen(capacity)
        self.stuck = np.zeros((capacity, len(COLUMNS)), bool)
        self.reported: dict[tuple[str, str], int] = {}
        self.waited_s = EVERY_S * (phase % 12) / 12.0

    def resize(self, capacity: int) -> None:
        """Make room for more devices."""
        self.model = grow(self.model, capacity, _unseen)
        self.stuck = np.pad(self.stuck, ((0, capacity - len(self.stuck)), (0, 0)))

    def reset(self, slots: list[int]) -> None:
        """Reset slots that belong to other devices now."""
        if slots:
            self.model = wiped(self.model, _unseen(len(self.stuck)), slots)
            self.stuck[slots] = False

    def trusted(self, means: Means) -> Means:
        """The means without the values of stuck sensors."""
        if not self.stuck.any():
            return means
        values = means.values.copy()
        n = len(values)
        for at, column in enumerate(COLUMNS):
            values[self.stuck[:n, at], column] = np.nan
        return means._replace(values=values)

    def step(self, tick: Tick, means: Means, profiles: Profiles, table: SubjectTable) -> Iterator[Symptom]:
        """Symptoms at the end of a window."""
        self.waited_s += means.elapsed_s
        if self.waited_s < EVERY_S:
            return
        elapsed_s, self.waited_s = np.float32(self.waited_s), 0.0
        self._follow(means, profiles.load_of_minutes, elapsed_s)
        longest_ns = round(MISSING_REPEAT_S * NS_PER_S)
        self.reported = {k: t for k, t in self.reported.items() if 0 <= tick.end_ns - t < longest_ns}
        for slot in np.flatnonzero(self.stuck[: len(means.mask)].any(axis=1) & means.mask).tolist():
            yield from self._stuck(tick, slot, table)
        lost = (self.model.lost_s >= LOST_S) & (self.model.known_s >= KNOWN_S)
        for slot in np.flatnonzero(lost.any(axis=1)).tolist():
            if means.mask[slot] and np.isfinite(means.values[slot]).any():
                yield from self._missing(tick, slot, np.flatnonzero(lost[slot]).tolist(), table)

    def _follow(self, means: Means, load: NDArray[np.float32], elapsed_s: np.float32) -> None:
        """Update with the means of a window."""
        old, zero = self.model, np.float32(0.0)
        seen, known = means.mask[:, None], np.isfinite(means.values)
        x, reads = means.values[:, COLUMNS], known[:, COLUMNS]
        same = reads & (x == old.last)
        moved = reads & ~same
        load = load[:, None]
        with np.errstate(invalid="ignore"):
            still_s = np.where(moved, zero, old.still_s + np.where(same, elapsed_s, zero))
            settles = still_s < SETTLES_S
            least = np.where(settles, np.float32(np.inf), np.fmin(old.least, load))
            most = np.where(settles, np.float32(-np.inf), np.fmax(old.most, load))
            follows = (most - least >= LOAD_MOVES) & (old.moves >= LEAST_MOVES)
            self.stuck = same & follows & (still_s >= STUCK_S) | (self.stuck & ~moved)
        self.model = State(
            np.where(reads, x, old.last),
            still_s,
            old.moves + (moved & np.isfinite(old.last)),
            least,
            most,
            np.minimum(old.known_s + elapsed_s * known, np.float32(KNOWN_S)),
            np.where(known, zero, old.lost_s + elapsed_s * (seen & ~known)),
        )

    def _stuck(self, tick: Tick, slot: int, table: SubjectTable) -> Iterator[Symptom]:
        device = table.names[slot]
        if not self._is_news(STUCK, device, tick, REPEAT_S):
            return
        for at in np.flatnonzero(self.stuck[slot]).tolist():
            metric, still_s = GPU.metrics[COLUMNS[at]], float(self.model.still_s[slot, at])
            value = float(self.model.last[slot, at])
            moved = float(self.model.most[slot, at] - self.model.least[slot, at])
            yield _sign(
                tick, STUCK, table.owner[slot], device, still_s,
                f"{metric.key} has been exactly {value:g} {metric.unit} for {still_s / 60.0:.0f} min, while the load "
                f"changed by {moved:.0%}: the value is not used",
                Evidence(name=metric.key, value=value, unit=metric.unit),
            )  # fmt: skip
            return

    def _missing(self, tick: Tick, slot: int, columns: list[int], table: SubjectTable) -> Iterator[Symptom]:
        device = table.names[slot]
        if not self._is_news(MISSING, device, tick, MISSING_REPEAT_S):
            return
        names = [GPU.metrics[column].key for column in columns]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lost_s = float(self.model.lost_s[slot, columns].max())
        yield _sign(
            tick, MISSING, table.owner[slot], device, lost_s,
            f"it no longer reports {', '.join(names[:_NAMED])}{more}, for {lost_s / 60.0:.0f} min",
            Evidence(name="metrics.missing", value=float(len(names)), unit="{metric}"),
        )  # fmt: skip

    def _is_news(self, detector: str, device: str, tick: Tick, repeat_s: float) -> bool:
        before = self.reported.get((detector, device))
        if before is not None and 0 <= tick.end_ns - before < repeat_s * NS_PER_S:
            return False
        self.reported[detector, device] = tick.end_ns
        return True

    def state(self) -> dict[str, Any]:
        """State for a snapshot."""
        reported = [[*key, at_ns] for key, at_ns in self.reported.items()]
        return {"model": arrays(self.model), "stuck": self.stuck, "reported": reported, "waited_s": self.waited_s}

    def load(self, state: dict[str, Any], capacity: int) -> None:
        """Replace the state by that of a snapshot."""
        self.model, self.stuck = like(_unseen(capacity), state["model"]), np.array(state["stuck"])
        self.reported = {(detector, device): at_ns for detector, device, at_ns in state["reported"]}
        self.waited_s = state["waited_s"]


def _sign(tick: Tick, detector: str, node: str, device: str, lasted_s: float, text: str, of: Evidence) -> Symptom:
    since_ns = max(0, tick.end_ns - round(lasted_s * NS_PER_S))
    return Symptom(
        detector=detector, cause="telemetry", strength="sign", severity="info", since_ns=since_ns,
        time_ns=tick.end_ns, node=node, device=device, record=f"{detector}/{device}/{tick.index}", text=text,
        evidence=(of,), score=0.5,
    )  # fmt: skip
