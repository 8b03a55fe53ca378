"""A burst that fits nowhere: machines are bought from the simulated fleet, used, and returned after it."""

from itertools import pairwise

import msgspec
import pytest
from tests.simulator.orders import scale
from tests.streams.engine.closed_loop import ClosedLoop
from tests.streams.engine.recorded import arrived, restored
from tests.streams.engine.scene import CONFIG, PERIOD_NS, START_NS

from flyball_contracts.codec import Message
from flyball_contracts.config import FleetConfig, GridZone, NodePool, Service
from flyball_contracts.config.fleet import Burst
from flyball_contracts.records import AnyDecision, Scale
from flyball_contracts.topics import DECISIONS
from flyball_simulator import Fleet
from flyball_simulator.cell.baseline import Baseline
from flyball_simulator.operations import Refused
from flyball_streams.engine import Engine

PROVISION_S, TICKS = 30, 450
SIZING = msgspec.structs.replace(
    CONFIG.sizing, reversal_cooldown_s=10.0, cooldown_s=5.0, stabilization_window_s=20.0, max_scale_in=1.0
)
POOLS = msgspec.structs.replace(CONFIG.pools, buy_after_s=10.0, return_after_s=40.0)
WORKER = msgspec.structs.replace(CONFIG, sizing=SIZING, pools=POOLS, decision_interval_s=5.0)
GROWS = FleetConfig(
    cell="grows",
    zones=(GridZone(name="DE"),),
    pools=(
        NodePool(
            name="gpu-a", sku="h100", nodes=1, max_nodes=4, zone="DE", instance_type="sim.h100.8",
            price_usd_per_hour=32.0, managed=True, provision_s=float(PROVISION_S), return_after_s=40.0,
        ),
    ),
    services=(
        Service(
            name="chat", pools=("gpu-a",), replicas=6, max_replicas=24, base_load=0.6, cold_start_s=5.0,
            random_bursts_per_hour=0.0, bursts=(Burst(from_s=20.0, rise_s=5.0, hold_s=60.0, factor=3.0),),
        ),
    ),
    trainings=(), notebooks=(), batches=(), failing=(), straggling=(),
)  # fmt: skip


@pytest.fixture(scope="module")
def burst() -> ClosedLoop:
    loop = ClosedLoop(GROWS, WORKER)
    loop.run(TICKS)
    return loop


def of_pool(decisions: list[AnyDecision]) -> list[Scale]:
    return [d for d in decisions if isinstance(d, Scale) and d.workload == "pool:gpu-a"]


def test_machines_are_bought_used_and_returned(burst: ClosedLoop) -> None:
    orders = of_pool(burst.decisions)
    bought = [d for d in orders if d.replicas > d.replicas_before]
    returned = [d for d in orders if d.replicas < d.replicas_before]
    assert bought
    assert returned
    assert max(d.replicas for d in bought) <= 4
    most = max(d.replicas for d in burst.decisions if d.workload == "chat" and isinstance(d, Scale))
    assert most > 8, "more than one machine holds"
    assert len(burst.fleet.nodes) < max(d.replicas for d in bought)
    last = {o.decision: o.status for o in burst.outcomes}
    assert {last[d.id] for d in orders} <= {"done", "superseded"}
    assert last[orders[-1].id] == "done"
    operations = {o.id: o for o in burst.fleet.operations.all()}
    assert all(operations[d.id].effects == 1 for d in orders)
    went = {name for d in returned for name in d.victims}
    assert went
    assert went.isdisjoint(n.node for n in burst.fleet.nodes), "those that were named went"


def test_nothing_is_bought_twice_while_machines_start(burst: ClosedLoop) -> None:
    bought = [d for d in of_pool(burst.decisions) if d.replicas > d.replicas_before]
    chain = [(d.replicas_before, d.replicas) for d in bought]
    assert chain[0][0] == 1
    for earlier, later in pairwise(bought):
        if later.time_ns - earlier.time_ns < PROVISION_S * PERIOD_NS:
            assert later.replicas_before == earlier.replicas, "what is on its way counts"
    assert sum(after - before for before, after in chain) <= 3


def test_a_machine_is_paid_from_its_arrival_to_its_return_with_and_without_flyball(burst: ClosedLoop) -> None:
    """The fleet beside it buys by the rule of a cluster autoscaler."""
    beside = Baseline(GROWS, START_NS)
    most = 1
    for _ in range(TICKS):
        beside.tick()
        most = max(most, int(beside.plant.machines.present.sum()))
    assert most > 1
    held = burst.fleet.plant
    assert held.machines.managed
    assert not beside.plant.machines.managed
    of_fixed = 8 * 32.0 / 8 * TICKS / 3600.0  # the machine that is always there, were it full all the time
    assert burst.fleet.account().cost_usd > 0.5 * of_fixed
    assert beside.account().cost_usd > 0.5 * of_fixed


def test_a_recording_gives_the_same_decisions_to_the_byte_and_so_does_a_restart_while_machines_start() -> None:
    fleet, engine = Fleet(GROWS, START_NS), Engine(WORKER)
    batches = [arrived(fleet.messages_at_start())]
    sent: list[list[Message]] = [engine.feed(batches[0])]
    cut, other = 0, engine
    while not cut or len(batches) < cut + 10:
        batches.append(arrived(fleet.tick(fleet.plant.index), batches))
        sent.append(engine.feed(batches[-1]))
        ordered = any(m.topic == DECISIONS.name and b"pool:gpu-a" in m.value for m in sent[-1])
        cut = len(batches) if ordered and not cut else cut
        assert len(batches) < TICKS, "no machine was ever ordered"
        if len(batches) == cut:
            other = restored(engine)
    again = Engine(WORKER)
    assert [again.feed(batch) for batch in batches] == sent
    assert [other.feed(batch) for batch in batches[cut:]] == sent[cut:]


IMPOSSIBLE = [
    (5, "invalid", "5 machines lie outside 1 to 4"),
    (0, "invalid", "0 machines lie outside 1 to 4"),
    (1, "conflict", "2 machines of pool 'gpu-a' are to go, and only 1 are empty"),
]


@pytest.mark.parametrize(("machines", "code", "detail"), IMPOSSIBLE)
def test_the_fleet_sells_within_its_range_and_takes_no_machine_with_work_on_it(
    machines: int, code: str, detail: str
) -> None:
    fleet = Fleet(GROWS, START_NS)
    fleet.apply(scale("pool:gpu-a", 3, cell="grows"))
    fleet.apply(scale("chat", 12, cell="grows"))
    for i in range(PROVISION_S + 5):
        fleet.tick(i)
    shown = fleet.workload("pool:gpu-a")
    assert (shown.replicas, shown.ready, shown.cost_usd_per_hour) == (3, 3, 96.0)
    with pytest.raises(Refused, match=detail) as refused:
        fleet.apply(scale("pool:gpu-a", machines, cell="grows"))
    assert refused.value.code == code
    fleet.apply(scale("pool:gpu-a", 2, cell="grows", victims=("gpu-a-003",)))
    fleet.tick(fleet.plant.index)
    assert [n.node for n in fleet.nodes] == ["gpu-a-001", "gpu-a-002"]


def test_a_pool_that_is_not_managed_is_nobodys_to_scale() -> None:
    fleet = Fleet(FleetConfig(), START_NS)
    with pytest.raises(Refused, match="no pool 'gpu-a' that is managed"):
        fleet.apply(scale("pool:gpu-a", 13))
