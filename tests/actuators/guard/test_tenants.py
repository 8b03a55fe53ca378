"""No two tenants on one GPU without MIG, by the guard's own look at the inventories."""

import msgspec
import pytest
from tests.actuators.samples import CELL, NOW, inventory, migrate, preempt, scale, spec

from flyball_actuators.guard import Guard, GuardState, Verdict
from flyball_actuators.parameters import ActuatorParameters
from flyball_actuators.world import WorldTables
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
) -> Verdict:
    """The verdict where these workloads have a replica each on the only GPU of n2, or on a MIG instance of it."""
    tables = WorldTables()
    node = inventory("n2", devices=1)
    if divided:
        node = replace(node, devices=(replace(node.devices[0], mig_enabled=True), MIG))
    runs = tuple(Allocation(workload=name, replica=f"{name}-0", devices=(int(divided),)) for name in on_gpu)
    full = replace(node, allocations=runs)
    for record in (of("a", "chat", mine), of(tenant, "other", theirs), inventory("n1", replicas=4), full):
        tables.take(record)
    return Guard(ActuatorParameters()).authorise(GuardState(), decision, NOW, tables.view(""))[1]


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


def test_who_asks_for_whole_gpus_comes_beside_nobody_unless_the_node_divides_them_by_time() -> None:
    assert judged(TO_N2, "other", mine=1.0, theirs=1.0).status == "accepted"
    assert judged(TO_N2, "other", theirs=1.0).status == "accepted", "it has the GPU to itself"
    assert judged(TO_N2, "other", "other", mine=1.0, theirs=1.0).code == "tenant_mixed"
    assert judged(scale(), "other", "other", mine=1.0, theirs=1.0).status == "accepted", "the scheduler may choose n1"


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
