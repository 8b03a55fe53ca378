"""How well the capacity of a replica is known: owner, architecture, history, telemetry, and all of them weighed.

``python bench/capacity.py [--quick] [--data FOLDER] [--json PATH]``. Servers with continuous batching are simulated
(``_batching.py``), so their capacity is known. Each runs a model on a GPU at a speed that differs from the roofline's
by a hidden factor (lognormal, 0.3), its owner is off by another (lognormal, 0.4), and half-way its speed falls by 30
%. Load is quiet first, then bursts beyond capacity come and go; with ``--data`` it follows the requests per second of
public traces. Errors are those of each method's estimate against the truth, window by window: before the first
saturation, after it, and from ten minutes after the fall on. "Within 2" is the share of estimates whose error is
below twice what the method claims. Rows that lose stay.

With ``--data`` also: the 90th percentile of model loads in alibaba_gentd26, by pod and kind, predicted one by one; 90
% of the loads should lie below it.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for `bench`

from bench.common.batching import Server, simulate
from bench.common.report import machine, machine_line

from flyball_models.capacity import gpus, hybrid, static, tracker
from flyball_models.capacity.base import Limits
from flyball_models.capacity.starts import KEPT, p90

Floats = NDArray[np.float64]
WINDOW = 30
DELAY_S = 2.0
SLOWER = 0.7
SETTLE_S = 600
HIDDEN, OWNER = 0.3, 0.4
PHASES = ("quiet", "after saturation", "after the fall")
MODELS = (
    ("7B on l4", static.Model(6.7e9, 6.7e9, 32, 32, 32, 128), "l4", 1.0),
    ("8B on a100", static.Model(8.0e9, 8.0e9, 32, 32, 8, 128), "a100", 1.0),
    ("8B on h100, 8 bits", static.Model(8.0e9, 8.0e9, 32, 32, 8, 128, 1.0, 1.0), "h100", 1.0),
    ("70B on 4 h100", static.Model(7.0e10, 7.0e10, 80, 64, 8, 128), "h100", 4.0),
)


class Seen(NamedTuple):
    """One estimate: the method, the phase it was made in, its logarithmic error, and the error claimed."""

    method: str
    phase: int
    off: float
    error: float


def server_of(model: static.Model, gpu: gpus.Gpu, count: float, factor: float) -> tuple[Server, float]:
    """Server with the batch of the roofline and `factor` of its speed, and what the roofline predicts."""
    traffic = static.Traffic(1.0, 100.0, 32.0)
    bound = static.estimate(model, gpu, count, traffic)
    most = max(1, int(bound.batch))
    step_s = most / bound.tokens_per_s
    alpha = static.estimate(model, gpu, count, traffic._replace(most_at_once=1.0))
    beta_s = max(step_s - 1.0 / alpha.tokens_per_s, 0.15 * step_s) / most
    return Server(most, (step_s - beta_s * most) / factor, beta_s / factor, traffic.answer_tokens), bound.tokens_per_s


def synthetic(seconds: int, seed: int) -> Floats:
    """Load over capacity: quiet for a sixth, then a burst of two to six minutes in each quarter of an hour."""
    random = np.random.default_rng(seed)
    load = 0.35 + 0.15 * np.sin(np.arange(seconds) / 900.0)
    for start in range(seconds // 6, seconds, 900):
        load[start : start + int(random.integers(120, 360))] = random.uniform(1.05, 1.5)
    return load


def traced(counts: Floats, capacity_share: float) -> Floats:
    """Load over capacity that follows requests per second, smoothed over 10 s, its mean the share given."""
    smooth: Floats = np.convolve(counts, np.full(10, 0.1), "same")
    load: Floats = np.minimum(smooth / float(np.mean(smooth)) * capacity_share, 4.0)
    return load


def run(model: int, load: Floats, seed: int) -> list[Seen]:
    """Estimates of all methods over one run."""
    random = np.random.default_rng((1000, model, seed))
    _, architecture, name, count = MODELS[model]
    gpu = gpus.find(name)
    assert gpu is not None
    server, roofline = server_of(architecture, gpu, count, float(random.lognormal(0.0, HIDDEN)))
    owner = server.capacity * float(random.lognormal(0.0, OWNER))
    ticks = load.shape[0]
    half = ticks // 2
    speed = np.full(ticks, SLOWER)
    speed[:half] = 1.0
    ticks_of = simulate(server, 2, load, seed, speed)
    state, limits = (
        tracker.init(1),
        Limits(np.full(1, DELAY_S / math.log(100.0)), np.full(1, np.nan), np.full(1, np.nan)),
    )
    found: list[Seen] = []
    for t in range(ticks):
        state = tracker.add(state, ticks_of[t][:, None])
        if (t + 1) % WINDOW:
            continue
        state, _ = tracker.close(state, WINDOW, float(WINDOW), limits, np.full(1, owner), np.full(1, roofline))
        if half <= t < half + SETTLE_S:
            continue
        truth = server.capacity * float(speed[t])
        phase = 2 if t >= half else int(state.online.windows[0] > 0)
        for row, method in enumerate(hybrid.NAMES):
            value, error = float(state.latest.values[row, 0]), float(state.latest.errors[row, 0])
            if value > 0:
                found.append(Seen(method, phase, math.log(value / truth), error))
    return found


def summary(found: Sequence[Seen]) -> list[dict[str, Any]]:
    """Median absolute error of each method in each phase, in per cent, and the share within twice its own error."""
    rows: list[dict[str, Any]] = []
    for method in hybrid.NAMES:
        mine = [s for s in found if s.method == method]
        row: dict[str, Any] = {"method": method}
        for phase, title in enumerate(PHASES):
            off = [abs(math.expm1(s.off)) for s in mine if s.phase == phase]
            row[title] = float(np.median(off)) if off else None
        row["within 2"] = float(np.mean([abs(s.off) <= 2.0 * s.error for s in mine])) if mine else None
        rows.append(row)
    return rows


def loads(folder: Path) -> list[dict[str, Any]]:
    """Share of model loads below the 90th percentile predicted before each, by kind, and that over the median load."""
    import polars as pl

    data = pl.read_parquet(folder / "alibaba_gentd26" / "service_metrics.parquet").with_columns(
        pl.col("metric").cast(pl.String), pl.col("pod").cast(pl.String)
    )
    rows: list[dict[str, Any]] = []
    for kind in ("basemodel_load_ms", "pipeline_load_ms", "lora_load_ms", "controlnet_load_ms"):
        below: list[bool] = []
        ratio: list[float] = []
        for (_,), pod in data.filter(pl.col("metric") == kind).sort("t_s").group_by("pod", maintain_order=True):
            values = [v for v in pod["value"].to_list() if v is not None and v > 0]
            seed = float(np.median(values)) / 1000.0 if values else 0.0
            for i, value in enumerate(values[1:], 1):
                expected = p90([v / 1000.0 for v in values[max(0, i - KEPT) : i]], 3.0 * seed)
                below.append(value / 1000.0 <= expected)
                ratio.append(expected / max(seed, 1e-9))
        if below:
            rows.append(
                {
                    "kind": kind,
                    "loads": len(below),
                    "below": float(np.mean(below)),
                    "over median": float(np.median(ratio)),
                }
            )
    return rows


def traces(folder: Path) -> dict[str, Floats]:
    """Requests per second of two public traces."""
    import polars as pl

    azure = pl.read_parquet(next((folder / "azure_llm_2023").glob("*.parquet")))["timestamp"].dt.epoch("s").to_numpy()
    moon = pl.read_parquet(next((folder / "mooncake_fast25").glob("*.parquet")))["timestamp_ms"].to_numpy() // 1000
    return {
        name: np.bincount((at - at.min()).astype(np.int64)).astype(np.float64)
        for name, at in (("azure code 2023", azure), ("mooncake conversation", moon))
    }


def show(console: Console, title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print rows of shares as per cent."""
    table = Table(title=title, title_justify="left")
    for i, key in enumerate(rows[0] if rows else ()):
        table.add_column(key, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    console.print(table)


def _text(value: str | float | None) -> str:
    if isinstance(value, float):
        return f"{value:.1%}"
    return "-" if value is None else f"{value}"


def main() -> int:
    """Run what was requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two models, one seed, an hour: shows that it works")
    parser.add_argument("--data", type=Path, help="folder with the public traces")
    parser.add_argument("--json", type=Path, help="write all figures there")
    given = parser.parse_args()
    if given.data and not given.data.is_dir():
        parser.error(f"{given.data} is no folder; name that of the public traces with --data, or leave it out")
    seconds, seeds, models = (3600, 1, 2) if given.quick else (7200, 5, len(MODELS))
    about, console = {"machine": machine()}, Console()
    console.print(machine_line(about["machine"]))
    results: dict[str, Any] = {
        "synthetic": summary([s for m in range(models) for i in range(seeds) for s in run(m, synthetic(seconds, i), i)])
    }
    if given.data:
        for name, counts in traces(given.data).items():
            load = traced(counts, 0.6)
            results[name] = summary([s for m in range(models) for i in range(seeds) for s in run(m, load, i)])
    for name, rows in results.items():
        show(console, f"{name}: median error of the estimate, {models} models x {seeds} seeds", rows)
    if given.data:
        results["loads"] = loads(given.data)
        show(console, "alibaba_gentd26: model loads below the 90th percentile predicted", results["loads"])
    if given.json:
        given.json.write_text(json.dumps(about | results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
