"""Changes the resources that each replica of a workload requests."""

from collections.abc import Iterator

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Effect, Proposal, Scale, WorkloadSpec
from flyball_streams.engine.cell.backoff import Attempt
from flyball_streams.engine.cell.cycle import Cycle, cited
from flyball_streams.engine.cell.memory import Resizing


def go_on(cycle: Cycle) -> Iterator[Scale]:
    """Resize the replicas that earlier batches left."""
    for name, it in sorted(cycle.memory.resizing.items()):
        spec = cycle.spec(name)
        if spec is not None and not it.decision:
            yield from resize(cycle, it.proposal, spec, further=True)


def resize(cycle: Cycle, p: Proposal, spec: WorkloadSpec, *, further: bool = False) -> Iterator[Scale]:
    """Change the resources of each replica, at most once in ``rightsizing.every_s``.

    ``further`` is for replicas that an earlier decision of the same proposal left.
    """
    running, last = cycle.running(p.workload), None if further else cycle.memory.resized.get(p.workload)
    rest_ns = round(cycle.config.rightsizing.every_s * NS_PER_S)
    if p.resources is None or not running or (last is not None and 0 <= cycle.now_ns - last < rest_ns):
        return
    made = Attempt("resize", "", 0, 0)
    waited = cycle.admit(p.workload, made)
    if waited is None:
        return
    id_ = cycle.issue(p.workload, made)
    batches = cycle.memory.resizing[p.workload].batches if further else 0
    cycle.memory.resized[p.workload] = cycle.now_ns
    cycle.memory.resizing[p.workload] = Resizing(p, id_, batches)
    verb = "Go on to resize" if further else "Resize"
    saved = -(p.expected_saving or 0.0) * running
    price = cycle.gpu_price
    yield Scale(
        id=id_,
        **cycle.common(p.workload, f"{verb} {p.workload}: {p.reason}", p.confidence, cited(p), waited),
        expected=Effect(gpus=saved, cost_usd_per_hour=None if price is None else price * saved),
        replicas=running,
        replicas_before=running,
        resources=p.resources,
        resources_before=p.resources_before,
    )
