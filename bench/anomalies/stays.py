"""GPUs and hosts that stay too long in a state, and GPUs without values: false incidents in fleets of several sizes.

The fleet of the demo without its faulty GPUs, or as many copies of it as it takes, of which some nodes are fed, from
cold. Values of a GPU are missing ``GAPS`` times a day, and those of all GPUs of a node ``RESTARTS`` times, as when a
scrape fails and when a driver restarts; how long is lognormal, so that some of them last for minutes. Then, after half
of the time, one GPU in ``ONE_IN`` is lost without a word for an hour; it is found when an incident of a missing
device names it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from bench.common.incidents import incidents_in

from flyball_contracts.codec import Message, frame_message
from flyball_contracts.config import FleetConfig, WorkerConfig
from flyball_contracts.frame import decode_frame, make_frame
from flyball_contracts.metrics import GPU
from flyball_contracts.records import Incident
from flyball_contracts.topics import TELEMETRY
from flyball_simulator import Fleet, scaled
from flyball_streams.engine import Engine, Incoming
from flyball_streams.engine.budget import HOST_SOJOURNS_SHARE, LOST_SHARE, SOJOURNS_SHARE
from flyball_streams.engine.node.detectors.lost_devices import LOST
from flyball_streams.engine.node.detectors.sojourns import DETECTOR
from flyball_streams.engine.node.detectors.stuck import STUCK

DAY_S = 86_400.0
GAPS, RESTARTS = 4.0, 1.0
GAP_S, RESTART_S, SIGMA = 20.0, 30.0, 0.8
ONE_IN, LOST_S = 32, 3600.0
OURS = frozenset({DETECTOR, STUCK, LOST})
SHARE = SOJOURNS_SHARE + HOST_SOJOURNS_SHARE + LOST_SHARE
TITLES = ("GPUs", "GPU-days", "asked", "false, by detector", "lost", "found", "median s")


class _Gaps:
    """Rows of each node without values, by tick, and which devices are lost from which tick on."""

    def __init__(self, nodes: Sequence[Any], ticks: int, tick_s: float, seed: int) -> None:
        random, self.rows = np.random.default_rng([seed, 1]), defaultdict[tuple[int, str], set[int]](set)
        self.lost: dict[str, int] = {}
        days, long = ticks * tick_s / DAY_S, round(LOST_S / tick_s)

        def add(node: str, rows: Sequence[int], begin: int, count: int) -> None:
            for tick in range(begin, begin + count):
                self.rows[tick, node] |= set(rows)

        def lasts(median_s: float) -> int:
            return int(np.ceil(median_s * random.lognormal(0.0, SIGMA) / tick_s))

        for node in nodes:
            rows = range(len(node.devices))
            for row in rows:
                for begin in random.integers(0, ticks, random.poisson(GAPS * days)).tolist():
                    add(node.node, [row], begin, lasts(GAP_S))
                if random.random() < 1.0 / ONE_IN:
                    begin = int(random.integers(ticks // 2, ticks - long))
                    self.lost[node.devices[row].id] = begin
                    add(node.node, [row], begin, long)
            for begin in random.integers(0, ticks, random.poisson(RESTARTS * days)).tolist():
                add(node.node, rows, begin, lasts(RESTART_S))

    def without(self, message: Message, tick: int) -> Message:
        """A message as it is sent, with the rows of that tick missing."""
        rows = self.rows.get((tick, message.key.decode())) if message.topic == TELEMETRY.name else None
        if not rows:
            return message
        frame = decode_frame(message.value or b"")
        if frame.schema != GPU.schema:
            return message
        values = frame.values.copy()
        values[list(rows)] = np.nan
        kept = {f: getattr(frame, f) for f in frame.__struct_fields__ if f not in ("rows", "block")}
        return frame_message(make_frame(values, **kept))


def in_fleets(
    config: FleetConfig,
    start_ns: int,
    incoming: Callable[[Message], Incoming],
    sizes: Sequence[int],
    hours: float,
) -> Iterator[dict[str, Any]]:
    """False incidents of such detectors and the lost devices that are found, in fleets of so many GPUs."""
    each = len([d for node in Fleet(config, start_ns).nodes for d in node.devices])
    for gpus in sizes:
        fleet, engine = Fleet(scaled(config, -(-gpus // each)), start_ns), Engine(WorkerConfig())
        total = np.cumsum([len(node.devices) for node in fleet.nodes])
        nodes = fleet.nodes[: int(np.searchsorted(total, gpus)) + 1]
        left_out = {node.node.encode() for node in fleet.nodes[len(nodes) :]}
        ticks = round(hours * 3600 / config.tick_s)
        gaps, opened = _Gaps(nodes, ticks, config.tick_s, config.seed), dict[str, tuple[int, Incident]]()
        engine.feed([incoming(m) for m in fleet.messages_at_start() if m.key not in left_out])
        for tick in range(ticks):
            messages = [gaps.without(m, tick) for m in fleet.tick(tick) if m.key not in left_out]
            for one in incidents_in(engine.feed([incoming(m) for m in messages])):
                if any(s.detector in OURS for s in one.symptoms):
                    opened[one.id] = opened.get(one.id, (tick, one))[0], one
        delays, false = dict[str, float](), defaultdict[str, int](int)
        for tick, one in opened.values():
            named = [d for d in one.devices if tick - gaps.lost.get(d, ticks) >= 0]
            for device in named:
                delays.setdefault(device, (tick + 1 - gaps.lost[device]) * config.tick_s)
            if not named and one.status != "merged":
                false[next(s.detector for s in one.symptoms if s.detector in OURS)] += 1
        days = sum(len(node.devices) for node in nodes) * hours / 24
        yield {
            "part": "stays",
            "gpus": sum(len(node.devices) for node in nodes),
            "gpu_days": days,
            "asked": SHARE * WorkerConfig().health.false_incidents_per_1000_gpu_days * days / 1000.0,
            "false": dict(false),
            "false_told": [i.summary for _, i in opened.values() if not any(d in gaps.lost for d in i.devices)],
            "lost": len(gaps.lost),
            "found": len(delays),
            "delay_s": float(np.median(list(delays.values()))) if delays else None,
        }


def rows_of(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Lines of the table."""
    for row in (r for r in found if r["part"] == "stays"):
        false = ", ".join(f"{n} {name}" for name, n in sorted(row["false"].items())) or "0"
        delay = "" if row["delay_s"] is None else f"{row['delay_s']:.0f}"
        counts = (row["gpus"], f"{row['gpu_days']:.0f}", f"{row['asked']:.3f}", false, row["lost"], row["found"])
        yield (*map(str, counts), delay)
