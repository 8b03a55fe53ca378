"""No two tenants on one GPU without MIG, by the guard's own look at the inventories."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from tests.actuators.loop import FilePlatform, ended, live, publish, running, statuses_of, wait_for
from tests.actuators.samples import CELL, NOW, S, inventory, migrate, preempt, scale, spec

from flyball_actuators.guard import Guard, GuardState, Verdict
from flyball_actuators.parameters import ActuatorParameters
from flyball_actuators.platforms import make_platforms
from flyball_actuators.platforms.table import DRIVERS
from flyball_actuators.world import WorldTables
from flyball_contracts.config import ActuatorConfig, PlatformConfig
from flyball_contracts.records import Allocation, AnyDecision, Device, WorkloadSpec

replace = msgspec.structs.replace
MIG = Device(id="n2-mig", model="H100", memory_bytes=2**33, parent="n2-0", mig_profile="1g.10gb")


def of(tenant: str, workload: str, gpus: float) -> WorkloadSpec:
    return replace(spec(workload), tenant=tenant, gpus_per_replica=gpus)


def judged(
    decision: AnyDecision,
    *on_gpu: str,
    mine: float = 0.5,
    theirs: float = 0.5,
    tenant: str = "b",
    divided: bool = False,
    runtime: Literal["", "kubernetes", "process"] = "kubernetes",
    shared: bool = False,
    keeps_to_node: bool = True,
) -> Verdict:
    """The verdict where these workloads have a replica each on the only GPU of n2, or on a MIG instance of it."""
    tables = WorldTables()
    node = inventory("n2", devices=1)
    if divided:
        node = replace(node, devices=(replace(node.devices[0], mig_enabled=True), MIG))
    if shared:
        node = replace(node, devices=(replace(node.devices[0], shared=True),))
    runs = tuple(
        Allocation(workload=name, replica=f"{name}-0", devices=(int(divided),), runtime=runtime) for name in on_gpu
    )
    full = replace(node, allocations=runs)
    for record in (of("a", "chat", mine), of(tenant, "other", theirs), inventory("n1", replicas=4), full):
        tables.take(record)
    guard = Guard(ActuatorParameters(), lambda _: keeps_to_node)
    return guard.authorise(GuardState(), decision, NOW, tables.view(""))[1]


TO_N2 = migrate(to_node="n2")


@pytest.mark.parametrize("decision", [scale(), TO_N2, migrate()], ids=["scale", "named node", "any node"])
def test_a_part_of_a_gpu_is_not_given_to_another_tenant(decision: AnyDecision) -> None:
    verdict = judged(decision, "other")
    assert (verdict.status, verdict.code, verdict.check) == ("refused", "tenant_mixed", "tenant_mixed")
    assert "workload 'other' of tenant 'b' shares a GPU of node 'n2'" in verdict.detail
    assert "divide the GPU, keep the tenants on nodes of their own, or declare both as one tenant's" in verdict.detail
    assert judged(decision, "other", tenant="a").status == "accepted"
    assert judged(decision, "other", divided=True).status == "accepted"
    assert judged(decision).status == "accepted"


def test_a_named_node_counts_only_where_the_platform_keeps_to_it() -> None:
    elsewhere = migrate(from_node="n2", to_node="n1")
    assert judged(elsewhere, "other").status == "accepted"
    verdict = judged(elsewhere, "other", keeps_to_node=False)
    assert (verdict.code, "a GPU of node 'n2'" in verdict.detail) == ("tenant_mixed", True)
    entries = (
        PlatformConfig(cells=("cell-a",), driver="simulated", url="http://127.0.0.1:1"),
        PlatformConfig(cells=("cell-b",), driver="inventory"),
    )
    platforms = make_platforms(ActuatorConfig(platforms=entries), lambda _, __: {})
    assert platforms.keeps_to_node(elsewhere)
    assert not platforms.keeps_to_node(replace(elsewhere, cell="cell-b"))
    assert [name for name, can in DRIVERS.items() if can.promises.node] == ["simulated"]


def test_who_asks_for_whole_gpus_comes_beside_nobody_unless_the_node_divides_them_by_time() -> None:
    assert judged(TO_N2, "other", mine=1.0, theirs=1.0).status == "accepted"
    assert judged(TO_N2, "other", theirs=1.0).status == "accepted", "it has the GPU to itself"
    assert judged(TO_N2, "other", "other", mine=1.0, theirs=1.0).code == "tenant_mixed"
    for decision in (scale(), migrate()):
        assert judged(decision, "other", "other", mine=1.0, theirs=1.0).code == "tenant_mixed", "it may be put there"
        assert judged(decision, "other", "other", mine=1.0, theirs=1.0, tenant="a").status == "accepted"
        assert judged(decision, "other", "other", mine=0.0, theirs=1.0).status == "accepted", "it has no GPU"
        one = judged(decision, "other", mine=1.0, theirs=1.0, shared=True)
        assert one.code == "tenant_mixed", "the platform says that it gives it to several"
        for runtime in ("process", ""):  # the latter is what an agent's configuration says of its GPUs
            stray = judged(decision, "other", "other", mine=1.0, theirs=1.0, runtime=runtime)
            assert stray.status == "accepted", "no platform put two there, so it does not divide them by time"


def test_nobody_knows_whose_an_undeclared_workload_is() -> None:
    assert "'ghost' of an unknown tenant" in judged(TO_N2, "chat", "ghost").detail


@pytest.mark.parametrize("decision", [preempt(), scale(before=4, after=2)], ids=lambda d: type(d).__name__)
def test_what_starts_nothing_mixes_nobody(decision: AnyDecision) -> None:
    assert judged(decision, "other").status == "accepted"


def test_a_node_that_is_gone_or_of_another_cell_has_no_say() -> None:
    tables = WorldTables()
    runs = (Allocation(workload="other", replica="other-0", devices=(0,)),)
    far = replace(inventory("far", cell="cell-b", devices=1), allocations=runs)
    gone = replace(inventory("n2", devices=1), allocations=runs)
    for record in (of("a", "chat", 0.5), of("b", "other", 0.5), inventory("n1", replicas=4), far, gone):
        tables.take(record)
    tables.forget("flyball.inventory.v1", "n2")
    assert Guard(ActuatorParameters()).authorise(GuardState(), scale(cell=CELL), NOW, tables.view(""))[1].code == ""


def test_what_was_let_through_counts_before_an_inventory_shows_it() -> None:
    """Each alone is allowed, and together they may come to one GPU."""

    def second(
        first: AnyDecision, then: AnyDecision, *, later_s: int = 1, divided: bool = False, **specs: float
    ) -> str:
        tables, state = WorldTables(), GuardState()
        empty = inventory("n2", devices=1)
        if divided:
            empty = replace(empty, devices=(replace(empty.devices[0], mig_enabled=True), MIG))
        mine = of("a", "chat", specs.get("mine", 0.5))
        for record in (mine, of("a", "mate", 0.5), of("b", "other", specs.get("theirs", 0.5)), inventory("n1"), empty):
            tables.take(record)
        guard = Guard(ActuatorParameters(), lambda _: True)
        state, verdict = guard.authorise(state, first, NOW, tables.view(""))
        assert verdict.status == "accepted"
        kept = (grant for grants in state.grants.values() for grant in grants)
        state = GuardState.restored(kept, dry_run=True)
        verdict = guard.authorise(state, then, NOW + later_s * S, tables.view(""))[1]
        return verdict.code or verdict.status

    def more(workload: str, id_: str = "d2") -> AnyDecision:
        return scale(id_, workload=workload, before=0, after=1, ttl_s=899)

    there = migrate("m2", workload="other", replica="other-0", from_node="n1", to_node="n2")
    assert second(more("chat"), more("other", "d3")) == "tenant_mixed"
    assert second(more("chat"), there) == "tenant_mixed"
    assert second(there, more("chat")) == "tenant_mixed"
    assert second(more("chat"), more("mate", "d3")) == "accepted", "one tenant's"
    assert second(scale(before=2, after=1), more("other")) == "accepted", "it starts nothing"
    assert second(more("chat"), more("other", "d3"), divided=True) == "accepted"
    assert second(more("chat"), more("other", "d3"), mine=1.0) == "accepted", "it has a GPU to itself"
    assert second(more("chat"), more("other", "d3"), later_s=601) == "accepted", "an inventory would show it"


def test_two_quick_decisions_do_not_put_two_tenants_on_one_gpu(
    bootstrap: str, unique: Callable[[str], str], tmp_path: Path
) -> None:
    driver = FilePlatform(tmp_path / "effects")
    publish(bootstrap, of("a", "mine", 0.5), of("b", "theirs", 0.5), inventory("n2", devices=1))
    with running(live(bootstrap, unique("actuator"), tmp_path), driver):
        publish(bootstrap, *(scale(name, workload=name, before=0, after=1) for name in ("mine", "theirs")))
        wait_for(ended(bootstrap, 2), "two final outcomes")
    (done,) = driver.effects()
    (other,) = {"mine", "theirs"} - {done}
    assert statuses_of(bootstrap, other) == ["refused tenant_mixed"]
