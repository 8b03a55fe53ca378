"""What serves a need at which cost and carbon: all on-demand, the cheapest spot, ours, and hindsight, on spot traces.

    python bench/choice.py [--quick] [--data DIR] [--json PATH] [--days N] [--part first|second|all]

A need of some replicas, one to a machine, follows a public trace of requests; every policy gets the most of it until a
machine that is requested now is ready, so that only lost spot makes work late. A zone takes back what it has no room
for, at once, and gives no more than it has; a machine is paid for from when it is there, and serves `COLD_S` later.
What is to go stays until what stands in for it is ready. Rows:

on-demand          all of it
cheapest spot      from the cheapest zone that has room, then the next; nothing where none has
spot + fallback    the same, and on-demand for what is missing
ours               the engine's own choice (mode act), from the inventories and signals alone
ours, carbon       the same with carbon at 0.5 USD/kg
ours, survive      the same, with half of the work in no one spot pool
hindsight          the cheapest that has room, ready at once and free to move: an unreachable bound

The risk in the signals is how often a zone had less room than before, in the last three days. The policy was
tuned on the first halves of 14 days.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from flyball_contracts.config import Offer
from flyball_contracts.records import (
    Allocation,
    Alternatives,
    Device,
    Inventory,
    Proposal,
    Signal,
    Tick,
    WorkloadSpec,
)
from flyball_contracts.records.signals import SignalKind
from flyball_streams.engine.cell.arbiter import Arbiter
from flyball_streams.engine.directory import Directory
from flyball_streams.engine.parameters import ChoiceParameters, Parameters

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
START_S = 1_750_000_200
CELL, NAME, ON_DEMAND = "bench", "chat", "on-demand"
COLD_S, START_MACHINE_S = 300.0, 120.0
POWER_W = {"H100": 8 * 700.0, "V100": 300.0}
GRIDS = {"us-central": "US-TEX-ERCO", "us-east": "CA-ON", "us-west": "US-CAL-CISO", "asia-southeast": "SG"}
"""Zones of the carbon data that stand in for regions of the clouds; KR where none is named."""
PRIOR_LOSSES, PRIOR_H, MEMORY_H = 0.5, 10.0, 72.0
Floats = NDArray[np.float64]
Target = Callable[[int, int, Mapping[str, int]], dict[str, int]]
"""From a tick, the need, and what is there by offer, to what should be."""


class Market(NamedTuple):
    """Zones of one kind of machine: room and price [T, Z], price on-demand, g/kWh of zones and on-demand [T, Z + 1]."""

    name: str
    model: str
    step_s: float
    zones: tuple[str, ...]
    room: Floats
    price: Floats
    on_demand: float
    carbon: Floats
    need: NDArray[np.int64]


class Score(NamedTuple):
    """Cost in USD, carbon in kg, the share of the work that was late, machines lost and started."""

    usd: float
    carbon_kg: float
    late: float
    lost: int
    started: int
    seconds: float


def play(market: Market, target: Target) -> Score:
    """Run a policy through a market."""
    names = (*market.zones, ON_DEMAND)
    lead = max(1, math.ceil((START_MACHINE_S + COLD_S) / market.step_s))
    ready: dict[str, list[int]] = {name: [] for name in names}  # ticks from which each machine serves
    ready[ON_DEMAND] = [0] * int(market.need[: lead + 1].max())
    usd = carbon = late = 0.0
    lost = started = 0
    begun = time.process_time()
    for t in range(len(market.need)):
        for z, zone in enumerate(market.zones):
            ready[zone].sort()
            gone = max(0, len(ready[zone]) - int(market.room[t, z]))
            lost += gone
            del ready[zone][len(ready[zone]) - gone :]
        wanted = target(t, int(market.need[t : t + lead + 1].max()), {n: len(there) for n, there in ready.items()})
        going: dict[str, int] = {}
        for z, name in enumerate(names):
            here = len(ready[name])
            most = int(market.room[t, z]) if z < len(market.zones) else 10_000
            more = max(0, min(wanted.get(name, 0), most) - here)
            ready[name] += [t + lead] * more
            started += more
            going[name] = max(0, here - wanted.get(name, 0))
        enough = sum(wanted.values())
        for name in names:  # what is to go stays until others do its work
            serving = sum(at <= t for there in ready.values() for at in there)
            spare = sum(map(len, ready.values())) - enough
            ready[name].sort()
            idle = sum(at > t for at in ready[name])
            go = min(going[name], max(0, spare), idle + max(0, serving - enough))
            del ready[name][len(ready[name]) - go :]
        served = sum(at <= t for there in ready.values() for at in there)
        late += max(0.0, market.need[t] - served)
        hours = market.step_s / 3600.0
        for z, name in enumerate(names):
            each = market.price[t, z] if z < len(market.zones) else market.on_demand
            usd += len(ready[name]) * each * hours
            carbon += len(ready[name]) * POWER_W[market.model] / 1e6 * market.carbon[t, z] * hours
    return Score(usd, carbon, late / float(market.need.sum()), lost, started, time.process_time() - begun)


def cheapest(market: Market, *, fallback: bool) -> Target:
    """Cheapest zones first, each as far as it has room."""

    def target(t: int, need: int, held: Mapping[str, int]) -> dict[str, int]:
        found: dict[str, int] = {}
        order: list[int] = np.argsort(market.price[t], kind="stable").tolist()
        for z in order:
            zone = market.zones[z]
            if market.price[t, z] < market.on_demand:
                found[zone] = min(int(market.room[t, z]), need - sum(found.values()))
        return found | ({ON_DEMAND: need - sum(found.values())} if fallback else {})

    return target


def hindsight(market: Market) -> Score:
    """Least cost of each tick, with the room that turns out to be there."""
    usd = carbon = 0.0
    hours = market.step_s / 3600.0
    for t, need in enumerate(market.need.tolist()):
        counts = cheapest(market, fallback=True)(t, need, {})
        for z, name in enumerate((*market.zones, ON_DEMAND)):
            each = market.price[t, z] if z < len(market.zones) else market.on_demand
            usd += counts.get(name, 0) * each * hours
            carbon += counts.get(name, 0) * POWER_W[market.model] / 1e6 * market.carbon[t, z] * hours
    return Score(usd, carbon, 0.0, 0, 0, 0.0)


class Ours:
    """The cell lane's choice, fed as a lane is: inventories, signals, and what is proposed."""

    def __init__(self, market: Market, **rules: float) -> None:
        self.market = market
        self.names = (*market.zones, ON_DEMAND)
        common: dict[str, Any] = {"gpu_model": market.model, "power_w": POWER_W[market.model]}
        common |= {"start_s": START_MACHINE_S, "at_most": 1_000}
        offers = [Offer(name=zone, market="spot", zone=zone, **common) for zone in market.zones]
        offers.append(Offer(name=ON_DEMAND, zone=ON_DEMAND, price_usd_per_hour=market.on_demand, **common))
        config = ChoiceParameters(mode="act", offers=tuple(offers), **rules)
        self.directory = Directory()
        self.spec = WorkloadSpec(
            workload=NAME, cell=CELL, time_ns=0, kind="inference", max_replicas=1_000, cold_start_s=COLD_S
        )
        self.directory.apply(self.spec)
        self.arbiter = Arbiter(CELL, Parameters(choice=config), self.directory)
        self.known = dict.fromkeys(self.names, 0)
        self.risk = np.zeros((2, len(market.zones)))
        self.risk[0], self.risk[1] = PRIOR_LOSSES, PRIOR_H

    def __call__(self, t: int, need: int, held: Mapping[str, int]) -> dict[str, int]:
        """What to have."""
        period_ns = round(self.market.step_s * 1e9)
        tick = Tick(index=START_S * 1_000_000_000 // period_ns + t, period_ns=period_ns)
        self._signals(t, tick.end_ns)
        for name in self.names:
            self._nodes(name, held[name], tick.end_ns)
        running = sum(held.values())
        proposal = Proposal(
            id=f"{tick.index}",
            action="choose",
            workload=NAME,
            reason="the trace says so",
            replicas=need,
            observed_replicas=running,
            alternatives=Alternatives(
                work=dict.fromkeys(self.names, 1.0),
                reference=1.0,
                cold_start_s=COLD_S,
                needed=need if need < running else None,
            ),
        )
        list(self.arbiter.decide(tick, [proposal]))
        choices = self.arbiter.memory.choices
        if NAME in choices.pending:
            return {part.offer: part.replicas for part in choices.pending[NAME].portions}
        if need == running or NAME in choices.kept:
            return dict(held)
        spot = {name: n for name, n in held.items() if name != ON_DEMAND}  # nothing serves by its rules
        return spot | {ON_DEMAND: max(0, need - sum(spot.values()))}

    def _signals(self, t: int, now: int) -> None:
        market, hours = self.market, self.market.step_s / 3600.0
        if t:
            fade = 1.0 - hours / MEMORY_H
            there = market.room[t - 1] > 0
            self.risk = self.risk * fade + np.array([market.room[t] < market.room[t - 1], there * hours])
        hazard = 1.0 - np.exp(-self.risk[0] / self.risk[1])
        for z, zone in enumerate(market.zones):
            self._publish("spot_price", zone, float(market.price[t, z]), now)
            self._publish("spot_risk", zone, round(float(hazard[z]), 3), now)
        for z, zone in enumerate(self.names):
            self._publish("carbon_intensity", zone, float(market.carbon[t, z]), now)

    def _publish(self, kind: SignalKind, zone: str, value: float, now: int) -> None:
        last = self.directory.signals.get((zone, kind))
        if last is None or last.p50[0] != value:
            self.directory.apply(
                Signal(zone=zone, kind=kind, published_ns=now, start_ns=now, step_s=1e8, p50=(value,), source="bench")
            )

    def _nodes(self, name: str, n: int, now: int) -> None:
        for i in range(min(n, self.known[name]), max(n, self.known[name])):
            node = f"{name}/{i}"
            held = (Allocation(workload=NAME, replica=node, devices=(0,)),) if i < n else ()
            self.directory.apply(
                Inventory(
                    node=node,
                    cell=CELL,
                    epoch=1,
                    time_ns=now,
                    allocations=held,
                    zone=name,
                    devices=(Device(id=node, model=self.market.model, memory_bytes=1),),
                    capacity_type="on_demand" if name == ON_DEMAND else "spot",
                )
            )
        self.known[name] = n


def gcp_h100(folder: Path, days: float) -> Market:
    """Machines of 8 H100 in seven zones of Google Cloud, probed for up to 16 each ten minutes."""
    table = pl.read_parquet(folder / "spot_skynomad" / "h100_availability.parquet").with_columns(
        pl.col("zone").cast(pl.String), pl.col("instances").fill_null(pl.col("available").cast(pl.Int8) * 16)
    )
    prices = pl.read_parquet(folder / "spot_skynomad" / "h100_price.parquet").sort("zone")
    wide = table.pivot(on="zone", index="tick", values="instances").sort("tick").head(round(days * 144))
    zones = tuple(prices["zone"].to_list())
    room = wide.select(zones).to_numpy().astype(np.float64)
    price = np.broadcast_to(prices["spot_usd_per_h"].to_numpy(), room.shape)
    on_demand = float(prices["on_demand_usd_per_h"].min())  # type: ignore[arg-type]
    return _market(folder, "H100 x 8, Google Cloud", "H100", 600.0, zones, room, price, on_demand)


def aws_v100(folder: Path, days: float) -> Market:
    """One V100 each in three zones of AWS; a zone that has room has it for 16. Two have the price of a neighbour."""
    neighbours = {"us-east-1c": "us-east-1c", "us-east-2a": "us-east-1a", "us-west-2b": "us-west-2a"}
    table = pl.read_parquet(folder / "spot_skypilot" / "traces.parquet").filter(
        (pl.col("collection") == "aws-02-15-2023") & (pl.col("instance") == "v100_1")
    )
    table = table.with_columns(pl.col("zone").cast(pl.String)).filter(pl.col("zone").is_in(list(neighbours)))
    wide = table.pivot(on="zone", index="tick", values="value").sort("tick").drop_nulls()
    prices = pl.read_parquet(folder / "spot_skynomad" / "v100_price.parquet").with_columns(
        pl.col("zone").cast(pl.String)
    )
    usd = prices.pivot(on="zone", index="tick", values="spot_usd_per_h").sort("tick")
    both = wide.join(usd, "tick", "inner", suffix="_usd").sort("tick").head(round(days * 86_400 / 195))
    zones = tuple(sorted(set(wide.columns) & set(neighbours)))
    room = both.select(zones).to_numpy().astype(np.float64) * 16.0
    columns = [n + "_usd" if (n := neighbours[zone]) + "_usd" in both.columns else n for zone in zones]
    return _market(folder, "V100, AWS", "V100", 195.0, zones, room, both.select(columns).to_numpy(), 3.06)


def _market(
    folder: Path, name: str, model: str, step_s: float, zones: tuple[str, ...], room: Floats, price: Any, usd: float
) -> Market:
    ticks = len(room)
    at_s = np.arange(ticks) * step_s
    rates = pl.read_parquet(folder / "servegen" / "rates.parquet").filter(pl.col("model") == "m-mid")
    load = rates.group_by("t_s").agg(pl.col("rate_rps").sum()).sort("t_s")["rate_rps"].to_numpy()
    level = load[(at_s // 600).astype(int) % len(load)]
    grid = pl.read_parquet(folder / "carbon_electricitymaps" / "hourly_2021_2024.parquet").filter(
        pl.col("time").dt.year() == 2022
    )
    wide = grid.with_columns(pl.col("zone").cast(pl.String)).pivot(on="zone", index="time", values="lca").sort("time")
    hour = (at_s // 3600).astype(int)
    names = [next((grid for part, grid in GRIDS.items() if zone.startswith(part)), "KR") for zone in zones]
    carbon = wide.select([*dict.fromkeys([*names, "US-TEX-ERCO"])]).to_dict(as_series=False)
    columns = [np.array(carbon[n], np.float64)[hour] for n in (*names, "US-TEX-ERCO")]
    carbon_of: Floats = np.array(columns, np.float64).T
    need = np.maximum(1, np.ceil(8.0 * level / load.mean())).astype(np.int64)
    return Market(name, model, step_s, zones, room, np.asarray(price, np.float64), usd, carbon_of, need)


def synthetic(seed: int = 1, ticks: int = 6 * 24) -> Market:
    """Two zones that come and go, at prices that move a little, and a daily wave."""
    rng = np.random.default_rng(seed)
    up = np.cumsum(rng.random((ticks, 2)) < 0.03, axis=0) % 2 == 0
    price = 9.0 + np.cumsum(rng.normal(0, 0.05, (ticks, 2)), axis=0)
    wave = np.ceil(6 + 3 * np.sin(np.arange(ticks) * 2 * np.pi / 144)).astype(np.int64)
    carbon: Floats = np.full((ticks, 3), 350.0) + np.array([0.0, 200.0, 400.0])
    return Market("synthetic", "H100", 600.0, ("a", "b"), up * 12.0, price, 30.0, carbon, wave)


def part_of(market: Market, name: str) -> Market:
    """First or second half of a market's ticks, or all of them."""
    half = len(market.need) // 2
    kept = {"first": slice(half), "second": slice(half, None), "all": slice(None)}[name]
    return market._replace(
        room=market.room[kept], price=market.price[kept], carbon=market.carbon[kept], need=market.need[kept]
    )


def contest(market: Market) -> dict[str, Score]:
    """Score of each row."""
    only_on_demand: Target = lambda t, need, held: {ON_DEMAND: need}  # noqa: E731
    return {
        "on-demand": play(market, only_on_demand),
        "cheapest spot": play(market, cheapest(market, fallback=False)),
        "spot + fallback": play(market, cheapest(market, fallback=True)),
        "ours": play(market, Ours(market)),
        "ours, carbon": play(market, Ours(market, usd_per_carbon_kg=0.5)),
        "ours, survive": play(market, Ours(market, survive=0.5)),
        "hindsight": hindsight(market),
    }


def main() -> None:
    """Play all rows in all markets, and print what became of them."""
    parser = argparse.ArgumentParser(description="Which machines serve a need: cost, carbon, and work lost with spot.")
    parser.add_argument("--quick", action="store_true", help="a synthetic market only; supports no claim")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--days", type=float, default=14.0)
    parser.add_argument("--part", choices=("first", "second", "all"), default="all", help="half of the days")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not options.quick and not options.data.is_dir():
        parser.error(f"{options.data} is no folder; name that of the public data with --data, or use --quick")
    console = Console(width=120)
    if options.quick:
        console.print("A synthetic market: this supports no claim.")
    data, days = options.data, options.days
    public: tuple[Callable[[], Market], ...] = (lambda: gcp_h100(data, days), lambda: aws_v100(data, days))
    made: tuple[Callable[[], Market], ...] = (synthetic,) if options.quick else public
    results: list[dict[str, Any]] = []
    for make in made:
        market = part_of(make(), options.part)
        scores = contest(market)
        base = scores["on-demand"]
        span = len(market.need) * market.step_s / 86_400.0
        table = Table(
            title=f"{market.name}: {len(market.zones)} zones, {span:.3g} days, {market.need.mean():.1f} replicas"
        )
        for column in ("row", "USD", "of on-demand", "kgCO2e", "of on-demand", "work late", "lost", "started", "CPU s"):
            table.add_column(column, justify="left" if column == "row" else "right")
        for name, s in scores.items():
            table.add_row(
                name, f"{s.usd:,.0f}", f"{s.usd / base.usd:.1%}", f"{s.carbon_kg:,.0f}",
                f"{s.carbon_kg / base.carbon_kg:.1%}", f"{s.late:.3%}", str(s.lost), str(s.started), f"{s.seconds:.1f}",
            )  # fmt: skip
        console.print(table)
        rows = [{"row": name, **score._asdict()} for name, score in scores.items()]
        results.append({"market": market.name, "days": span, "zones": market.zones, "rows": rows})
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
