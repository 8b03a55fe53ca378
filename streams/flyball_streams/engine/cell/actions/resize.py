"""What each replica of a workload asks for."""

from collections.abc import Iterator

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Effect, Proposal, Scale, WorkloadSpec
from flyball_streams.engine.cell.backoff import Attempt
from flyball_streams.engine.cell.cycle import Cycle, cited


def resize(cycle: Cycle, p: Proposal, spec: WorkloadSpec) -> Iterator[Scale]:
    """Change what each replica asks for, rarely; the number of replicas is the one that is believed."""
    running, last = cycle.running(p.workload), cycle.memory.resized.get(p.workload)
    rest_ns = round(cycle.config.rightsizing.every_s * NS_PER_S)
    if p.resources is None or not running or (last is not None and 0 <= cycle.now_ns - last < rest_ns):
        return
    made = Attempt("resize", "", 0, 0)
    waited = cycle.admit(p.workload, made)
    if waited is None:
        return
    cycle.memory.resized[p.workload] = cycle.now_ns
    saved = -(p.expected_saving or 0.0) * running
    price = cycle.gpu_price
    yield Scale(
        id=cycle.issue(p.workload, made),
        **cycle.common(p.workload, f"Resize {p.workload}: {p.reason}", p.confidence, cited(p), waited),
        expected=Effect(gpus=saved, cost_usd_per_hour=None if price is None else price * saved),
        replicas=running,
        replicas_before=running,
        resources=p.resources,
        resources_before=p.resources_before,
    )
