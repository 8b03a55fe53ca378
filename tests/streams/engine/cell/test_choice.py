"""The choice of machines in the engine: to spot while it is cheap and safe, back when it is not, and told why."""

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.streams.engine.scene import (
    CELL,
    CONFIG,
    ONE,
    START_NS,
    Agent,
    Cell,
    Out,
    Values,
    incoming_records,
    inventory,
    spec,
)

from flyball_contracts.cloudevents import header
from flyball_contracts.codec import BINDINGS
from flyball_contracts.config import Offer
from flyball_contracts.records import Allocation, Architecture, Device, Inventory, MachineChoice, Record, Scale, Signal
from flyball_contracts.records.signals import SignalKind
from flyball_contracts.topics import DEMAND
from flyball_streams.engine import Engine, Lane
from flyball_streams.engine.cell.machines.losses import PRIOR_H
from flyball_streams.engine.parameters import ChoiceParameters

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
OFFERS = (
    Offer(name="od", gpu_model=A100, price_usd_per_hour=3.0, power_w=400.0, at_most=8, start_s=20.0),
    Offer(name="spot-a", gpu_model=A100, market="spot", zone="a", power_w=400.0, at_most=8, start_s=20.0),
    Offer(name="spot-b", gpu_model=A100, market="spot", zone="b", power_w=400.0, at_most=8, start_s=20.0),
)
CHOICE = ChoiceParameters(mode="act", offers=OFFERS, every_s=10.0, least_saving=0.05, retry_s=60.0, survive=0.5)
SIZING = msgspec.structs.replace(CONFIG.sizing, reversal_cooldown_s=2.0, cooldown_s=1.0)
CHAT = spec("chat", capacity_per_replica=100.0, cold_start_s=2.0, max_replicas=8)
DAY_S = 86_400.0


def signal(kind: SignalKind, zone: str, value: float, at_s: int = 0) -> Signal:
    now = START_NS + at_s * 1_000_000_000
    return Signal(zone=zone, kind=kind, published_ns=now, start_ns=now, step_s=DAY_S, p50=(value,), source="test")


def calm(price: float = 1.0, risk: float = 0.02, at_s: int = 0) -> list[Record]:
    """Both spot pools at a price and risk."""
    return [
        made
        for zone in "ab"
        for made in (signal("spot_price", zone, price, at_s), signal("spot_risk", zone, risk, at_s))
    ]


class Cloud(Cell):
    """A cell of nodes with a GPU each, whose replicas run where its decisions say, or on-demand where it obeys not."""

    def __init__(self, *records: Record, held: dict[str, int], obeys: bool = True, **changes: Any) -> None:
        self.choice = msgspec.structs.replace(CHOICE, **changes)
        self.nodes = {f"{o.name}-{i}": o for o in self.choice.offers for i in range(8)}
        self.running = {f"{name}-{i}" for name, n in held.items() for i in range(n)}
        self.obeys = obeys
        self.lost: set[str] = set()
        self.version = 1
        config = msgspec.structs.replace(
            CONFIG, choice=self.choice, sizing=SIZING, decision_ttl_s=5.0, decision_interval_s=0.0
        )
        super().__init__(*self.inventories(), records=[CHAT, *calm(), *records], config=config)

    def inventories(self) -> list[Inventory]:
        return [
            inventory(
                name,
                devices=(Device(id=f"{name}/0", model=offer.gpu_model, memory_bytes=80 * 2**30),),
                allocations=(Allocation(workload="chat", replica=name, devices=(0,)),) if name in self.running else (),
                capacity_type=offer.market,
                zone=offer.zone or "a",
                epoch=self.version,
                time_ns=START_NS + self.version,
            )
            for name, offer in self.nodes.items()
        ]

    @property
    def counts(self) -> dict[str, int]:
        found = {o.name: sum(self.nodes[n] is o for n in self.running) for o in self.choice.offers}
        return {name: n for name, n in found.items() if n}

    def play(self, first: int, until: int, work: float = 300.0) -> Out:
        """Ticks in which each replica has its share of the work, and decisions come true at once."""
        out = Out([])
        for index in range(first, until):
            each = work / max(1, len(self.running))
            shown = {"flyball.workload.request.rate": 1.0, "flyball.workload.work.rate": each}
            values = Values({"hw.gpu.utilization{task=general}": 0.7}, {}, shown)
            got = self.feed([f for agent in self.agents for f in agent.frames(index, values, schemas=(1, 3))])
            out.messages.extend(got.messages)
            for scale in got.of(Scale):
                self.obey(scale)
        return out

    def obey(self, scale: Scale) -> None:
        wanted = {part.offer: part.replicas for part in scale.mix} if self.obeys and scale.mix else self.counts
        if not (self.obeys and scale.mix):
            wanted["od"] = wanted.get("od", 0) + scale.replicas - len(self.running)
        self.run_on(wanted)

    def run_on(self, counts: dict[str, int]) -> None:
        for offer in self.choice.offers:
            names = [f"{offer.name}-{i}" for i in range(8) if f"{offer.name}-{i}" not in self.lost]
            self.running -= {f"{offer.name}-{i}" for i in range(8)}
            self.running |= set(names[: counts.get(offer.name, 0)])
        self.version += 1
        nodes = self.inventories()
        for agent, node in zip(self.agents, nodes, strict=True):
            agent.inventory = node
        self.feed(incoming_records(*nodes))


def mixes(out: Out) -> list[dict[str, int]]:
    return [{part.offer: part.replicas for part in s.mix if part.replicas} for s in out.of(Scale) if s.mix]


def choices(out: Out) -> list[MachineChoice]:
    return out.of(MachineChoice)


def test_it_moves_to_spot_while_that_is_cheap_and_back_when_it_is_dear() -> None:
    cloud = Cloud(held={"od": 4})
    out = cloud.play(0, 25)
    assert mixes(out) == [{"spot-a": 2, "spot-b": 2}]
    assert cloud.counts == {"spot-a": 2, "spot-b": 2}
    (scale,) = [s for s in out.of(Scale) if s.mix]
    assert scale.expected.cost_usd_per_hour == pytest.approx(-8.0)
    assert scale.expected.gpus == 0.0
    assert scale.reason.startswith(
        "Move the 4 replicas of chat: 2 spot A100 in a and 2 spot A100 in b cost 4 USD/h; 4 on-demand A100 alone would "
        "cost 12 USD/h; spot may lose 2 of them at once, with 0.012 % in the 0.37 min that others take, and 0.012 % of "
    )
    risk = next(e for e in scale.evidence if e.name == "spot_risk")
    assert risk.record == BINDINGS[Signal].identity(signal("spot_risk", "a", 0.02))
    cloud.feed(incoming_records(*calm(price=1.01, at_s=25)))
    assert mixes(cloud.play(25, 60)) == []  # a cent moves nothing
    cloud.feed(incoming_records(*calm(price=5.0, at_s=60)))
    assert mixes(cloud.play(60, 80)) == [{"od": 4}]
    assert cloud.counts == {"od": 4}


def test_where_the_risk_rises_it_takes_spares_or_leaves() -> None:
    cloud = Cloud(held={"spot-a": 2, "spot-b": 2})
    assert mixes(cloud.play(0, 25)) == []
    cloud.feed(incoming_records(*calm(risk=0.999, at_s=25)))
    assert mixes(cloud.play(25, 75)) == [{"spot-a": 4, "spot-b": 4}]  # four in a hundred to be lost, where one may be
    cloud.feed(incoming_records(*calm(price=1.8, risk=0.999, at_s=75)))
    assert mixes(cloud.play(75, 100)) == [{"od": 4}]  # so many are dearer than those that are safe
    cloud.feed(incoming_records(*calm(at_s=100)))
    assert mixes(cloud.play(100, 125)) == [{"spot-a": 2, "spot-b": 2}]


def test_growth_takes_what_is_cheapest_and_covers_what_spot_may_lose() -> None:
    cloud = Cloud(held={"spot-a": 1, "spot-b": 1})
    out = cloud.play(0, 30, work=560.0)
    total = sum(cloud.counts.values())
    assert total >= 7
    assert max(cloud.counts.values()) <= -(-total // 2)
    first = next(s for s in out.of(Scale) if s.mix)
    assert first.reason.startswith("Scale chat out from 2 to ")
    assert "demand with its backlog" in first.reason
    assert [s for s in out.of(Scale) if not s.mix] == []
    forecasts = {e.record for e in first.evidence if e.name == "forecast.trusted"}
    assert forecasts <= {header(m.headers, "ce_id") for m in out.messages}


def test_a_pool_that_was_lost_is_not_bought_again_at_once() -> None:
    cloud = Cloud(held={"spot-a": 2, "spot-b": 2})
    cloud.play(0, 15)
    cloud.lost = {f"spot-a-{i}" for i in range(8)}
    cloud.run_on({"spot-b": 2})
    out = cloud.play(15, 40)
    assert cloud.counts == {"od": 2, "spot-b": 2}
    assert all("spot-a" not in mix for mix in mixes(out))
    cloud.lost = set()
    cloud.play(40, 100)
    assert cloud.counts == {"spot-a": 2, "spot-b": 2}


def test_more_is_requested_of_spot_that_delivered_and_of_on_demand_where_that_does_not() -> None:
    cloud = Cloud(held={"spot-a": 2}, survive=0.0)
    first = mixes(cloud.play(0, 30, work=560.0))[0]
    assert first.keys() == {"spot-a"}
    cloud = Cloud(held={"spot-a": 2}, survive=0.0)
    cloud.lost = {f"spot-a-{i}" for i in range(2, 8)}
    cloud.play(0, 70, work=560.0)
    assert cloud.counts["spot-a"] == 2
    assert sum(cloud.counts.values()) >= 7


def test_without_survive_the_cheapest_pool_has_what_the_objective_lets_it() -> None:
    cloud = Cloud(*(signal("spot_price", "b", 1.5),), held={"od": 4}, survive=0.0)
    assert mixes(cloud.play(0, 25)) == [{"spot-a": 4}]


def test_own_losses_say_how_risky_a_pool_is() -> None:
    cloud = Cloud(held={"spot-a": 2, "spot-b": 2})
    cloud.play(0, 15)
    cloud.lost = {f"spot-a-{i}" for i in range(8)}
    cloud.run_on({"spot-b": 2})
    cloud.play(15, 40)
    cloud.lost = set()
    back = [s for s in cloud.play(40, 100).of(Scale) if s.mix][-1]
    rate = next(e for e in back.evidence if e.name == "choice.loss_rate")
    assert rate.expected == 0.02
    assert rate.value == pytest.approx(1 - 0.98 * math.exp(-1 / PRIOR_H), abs=0.01)


def test_what_is_not_delivered_is_got_elsewhere() -> None:
    cloud = Cloud(held={"od": 4})
    cloud.lost = {f"spot-a-{i}" for i in range(8)}
    cloud.play(0, 70)
    assert cloud.counts == {"od": 2, "spot-b": 2}


def test_a_platform_that_does_not_follow_the_mix_still_gets_its_replicas() -> None:
    cloud = Cloud(held={"od": 2}, obeys=False)
    cloud.play(0, 60, work=560.0)
    assert cloud.counts["od"] >= 7


def test_advice_is_given_now_and_then_and_decides_nothing() -> None:
    cloud = Cloud(held={"od": 4}, mode="advise")
    out = cloud.play(0, 41)
    assert 3 <= len(choices(out)) <= 5
    assert [s for s in out.of(Scale) if s.mix] == []
    assert {p.offer: p.replicas for p in choices(out)[0].mix} == {"od": 0, "spot-a": 2, "spot-b": 2}


@pytest.mark.parametrize("changes", [{"mode": "off"}, {"offers": ()}])
def test_without_offers_or_mode_nothing_is_chosen(changes: dict[str, Any]) -> None:
    cloud = Cloud(held={"od": 2})
    config = msgspec.structs.replace(CONFIG, choice=msgspec.structs.replace(CHOICE, **changes), sizing=SIZING)
    cloud.engine = Engine(config, {name: 1 for name in cloud.engine.partitions})
    cloud.feed(incoming_records(*cloud.inventories(), CHAT, *calm()))
    out = cloud.play(0, 25, work=560.0)
    assert choices(out) == []
    assert all(p.action != "choose" for p in out.proposals())
    assert out.of(Scale)


def test_offers_without_a_price_or_for_another_cell_or_model_are_no_offers() -> None:
    dear = Offer(name="dear", gpu_model=A100, price_usd_per_hour=9.0)
    other = Offer(name="other", gpu_model=A100, price_usd_per_hour=0.1, cells=("elsewhere",))
    chip = Offer(name="chip", gpu_model="unknown", price_usd_per_hour=0.1)
    blind = Offer(name="blind", gpu_model=A100, market="spot", signals="nowhere")
    cloud = Cloud(held={"dear": 4}, offers=(dear, other, chip, blind))
    assert choices(cloud.play(0, 25)) == []


def test_the_architecture_says_which_gpu_serves_cheapest() -> None:
    model = Architecture(parameters=70e9, layers=80, heads=64, kv_heads=8, head_size=128, weight_bytes=1.0)
    offers = (
        Offer(name="od", gpu_model=A100, price_usd_per_hour=3.0, power_w=400.0, gpus=1),
        Offer(name="h100", gpu_model=H100, price_usd_per_hour=4.0, power_w=700.0, gpus=1),
    )
    big = msgspec.structs.replace(CHAT, model=model, gpus_per_replica=1.0, time_ns=START_NS + 1)
    cloud = Cloud(big, held={"od": 4}, offers=offers)
    (mix, *_) = mixes(cloud.play(0, 25))
    assert mix.keys() == {"h100"}
    assert 1 <= mix["h100"] <= 3


def test_carbon_has_its_price_and_its_words() -> None:
    offers = (
        Offer(name="od", gpu_model=A100, price_usd_per_hour=3.0, power_w=400.0, zone="coal", start_s=20.0),
        Offer(name="green", gpu_model=A100, price_usd_per_hour=3.1, power_w=400.0, zone="hydro", start_s=20.0),
    )
    grid = [signal("carbon_intensity", "coal", 900.0), signal("carbon_intensity", "hydro", 20.0)]
    assert mixes(Cloud(*grid, held={"od": 4}, offers=offers).play(0, 25)) == []
    dear = Cloud(*grid, held={"od": 4}, offers=offers, usd_per_carbon_kg=2.0, least_saving=0.02)
    out = dear.play(0, 25)
    assert mixes(out) == [{"green": 4}]
    (scale,) = [s for s in out.of(Scale) if s.mix]
    assert "4 on-demand A100 in hydro cost 12.4 USD/h and 0.032 kgCO2e/h" in scale.reason
    assert scale.expected.carbon_g_per_hour == pytest.approx(-4 * 0.4 * 880.0)


def test_what_no_offer_describes_stays_and_counts() -> None:
    cloud = Cloud(held={"od": 4}, mode="advise")
    held = (Allocation(workload="chat", replica="own", devices=(0,)),)
    owned = inventory("own", devices=(Device(id="own/0", model=A100, memory_bytes=1),), allocations=held)
    cloud.feed(incoming_records(owned))
    cloud.agents.append(Agent(owned))
    first = choices(cloud.play(0, 15, work=200.0))[0]
    assert sum(part.replicas for part in first.mix) == 4
    assert first.replicas == 5


def lanes(of: Cell) -> list[Lane]:
    return [*of.engine.nodes.values(), *of.engine.workloads, *of.engine.cells]


def sent(outs: Sequence[Out]) -> list[bytes]:
    """Messages but for the offsets of tables, for each engine has heard its tables in its own order."""
    return [re.sub(rb',"table_offsets":{[^}]*}', b"", m.value) for out in outs for m in out.messages]


def test_nobody_can_tell_that_it_was_restarted_and_a_replay_says_the_same() -> None:
    def half(cloud: Cloud) -> Out:
        return cloud.play(0, 17, work=560.0)

    whole, before, after = Cloud(held={"od": 2}), Cloud(held={"od": 2}), Cloud(held={"od": 2})
    expected = sent([half(whole), whole.play(17, 45)])
    assert any(b"spot-a" in value for value in expected)
    got = [half(before)]
    after.play(0, 2)
    after.running, after.version = set(before.running), before.version
    after.run_on(before.counts)
    for mine, theirs in zip(lanes(after), lanes(before), strict=True):
        mine.restore(theirs.snapshot())
    after.agents = before.agents
    for agent, node in zip(after.agents, after.inventories(), strict=True):
        agent.inventory = node
    before.feed(incoming_records(*after.inventories()))
    assert sent([*got, after.play(17, 45)]) == expected


@pytest.mark.parametrize("other", ["more", "sum"])
def test_two_workloads_never_get_more_than_there_is_in_one_workload_lane_or_two(other: str) -> None:
    few = tuple(msgspec.structs.replace(o, at_most=5 if o.name == "od" else 1) for o in OFFERS)
    more = spec(other, capacity_per_replica=100.0, max_replicas=8)
    cloud = Cloud(more, held={"od": 2}, offers=few)
    cloud.engine = Engine(cloud.engine.config, ONE | {DEMAND.name: 2})
    cloud.feed(incoming_records(*cloud.inventories(), CHAT, more, *calm()))
    held = Allocation(workload=other, replica="other-0", devices=(0,))
    node = inventory(
        "od-7", devices=(Device(id="od-7/0", model=A100, memory_bytes=1),), allocations=(held, ),
        capacity_type="on_demand", zone="a", epoch=9, time_ns=START_NS + 9,
    )  # fmt: skip
    cloud.feed(incoming_records(node))
    cloud.agents[7].inventory = node
    out = Out([])
    for index in range(12):
        shown = {"flyball.workload.request.rate": 1.0, "flyball.workload.work.rate": 180.0}
        values = Values({"hw.gpu.utilization{task=general}": 0.9}, {}, shown)
        out.messages.extend(
            cloud.feed([f for agent in cloud.agents for f in agent.frames(index, values, schemas=(1, 3))]).messages
        )
    latest: dict[str, dict[str, int]] = {"chat": {"od": 2}, other: {"od": 1}}
    for scale in out.of(Scale):
        assert scale.cell == CELL
        latest[scale.workload] = {part.offer: part.replicas for part in scale.mix}
        for offer in few:
            assert sum(mix.get(offer.name, 0) for mix in latest.values()) <= offer.at_most
    assert any(part.replicas > part.replicas_before for s in out.of(Scale) for part in s.mix)
