"""Scale: changes the number of replicas, resources or the power limit."""

from msgspec.structs import replace

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Portion, Resources, Scale, SubjectState
from flyball_simulator.cell.plant import Plant
from flyball_simulator.hardware.hosts import CPUS, MEMORY_BYTES
from flyball_simulator.operations.base import Progress, Refused


class ScaleTask:
    """Done when all desired replicas are ready and surplus ones are gone.

    CPU and memory are changed in place, one batch of replicas at a time. With a mix, each offer is a pool of the
    configuration: the pool of that name, or the one with its GPU model, market and, if given, instance type and zone.
    Without room within the configured time it fails, and the desired number becomes the number of placed replicas.
    """

    names: tuple[str, ...] = ()

    def __init__(self, plant: Plant, w: int, decision: Scale) -> None:
        self._plant, self._w, self._decision = plant, w, decision
        self._give_up_ns = plant.now_ns + round(plant.config.room_wait_s * NS_PER_S)
        plant.placement.check(w, decision.replicas)
        if decision.power_limit_w is not None:
            self._check_limit(decision.power_limit_w)
        if decision.resources is not None:
            _check_resources(decision.resources)
        self._resources, self._whole = None, True
        if decision.resources is not None:
            self._resources = _merged(plant.resources[w], decision.resources)
            self._whole = plant.replicas_with(w, self._resources, decision.batch_size) >= plant.placement.wanted[w]
        self._portions = tuple((portion, pool_of(plant, w, portion)) for portion in decision.mix)
        self._shares = self._counted() if decision.mix else None

    def expected(self, before: SubjectState) -> SubjectState:
        """The desired number, all ready."""
        requested = self._decision
        limit_w = before.power_limit_w if requested.power_limit_w is None else requested.power_limit_w
        resources = self._resources if self._whole else None
        return replace(
            before,
            replicas=requested.replicas,
            ready=requested.replicas,
            power_limit_w=limit_w,
            resources=before.resources if self._resources is None else resources,
            mix=requested.mix,
            suspended=False,
            version="",
        )

    def begin(self) -> None:
        """Place what fits, and stop the newest surplus replicas."""
        plant, w, requested = self._plant, self._w, self._decision
        if requested.power_limit_w is not None:
            plant.power_limit_w[w] = requested.power_limit_w
        if self._resources is not None:
            plant.resize(w, self._resources, requested.batch_size)
        if self._shares is None:
            plant.scale(w, requested.replicas)
        else:
            plant.scale_pools(w, requested.replicas, self._portions, self._shares)

    def advance(self) -> Progress:
        """Count the replicas."""
        plant, w = self._plant, self._w
        placement, name, wanted = plant.placement, plant.specs[w].workload, self._decision.replicas
        live = placement.live(w)
        leaving = [r for r in placement.placed[w] if r.leaving and not r.stopping]
        stopping = len(leaving) + sum(r.stopping for r in placement.placed[w])
        ready = plant.ready(w) - len(leaving)
        if len(live) < wanted and plant.now_ns >= self._give_up_ns:
            placement.wanted[w], placement.shares[w] = len(live), None
            plant.versions[w] += 1
            waited_s = plant.config.room_wait_s
            detail = f"{name}: {len(live)} of {wanted} replicas have a place and no room came within {waited_s:.0f} s"
            return Progress("failed", detail)
        if len(live) == wanted and ready >= wanted:
            for replica in leaving if self._shares is not None else ():
                plant.stop(replica)
        if len(live) == wanted and ready >= wanted and not stopping:
            return Progress("done", f"{name} has {wanted} replicas, all ready")
        without = f", {wanted - len(live)} without room" if len(live) < wanted else ""
        going = f", {stopping} stopping" if stopping else ""
        return Progress("running", f"{name}: {ready} of {wanted} replicas are ready{without}{going}")

    def supersede(self) -> bool:
        """Stop at once the replicas that were to leave later."""
        for replica in self._plant.placement.placed[self._w] if self._shares is not None else ():
            if replica.leaving and not replica.stopping:
                self._plant.stop(replica)
        return False

    def _counted(self) -> list[int]:
        """Desired replicas in each of the workload's pools; replicas in pools without a portion stay."""
        plant, w = self._plant, self._w
        name, live, pools = plant.specs[w].workload, plant.placement.live(w), plant.placement.workloads[w].nodes
        counted = {pool: 0 for _, pool in self._portions}
        for portion, pool in self._portions:
            counted[pool] += portion.replicas
        shares = [counted.get(p, sum(r.node in nodes for r in live)) for p, nodes in enumerate(pools)]
        if sum(shares) != self._decision.replicas:
            raise Refused(
                "conflict",
                f"{name}: with this mix it has {sum(shares)} replicas, not {self._decision.replicas}; "
                "count those on machines of no offer, which stay",
            )
        return shares

    def _check_limit(self, limit_w: float) -> None:
        site, nodes = self._plant.site, self._plant.placement.workloads[self._w].nodes
        skus = [site.nodes[int(i)].sku for pool in nodes for i in pool]
        least, most = max(s.idle_power_w for s in skus), min(s.power_limit_w for s in skus)
        if not least < limit_w <= most:
            raise Refused(
                "invalid", f"power_limit_w: {limit_w:g} W; its GPUs take more than {least:g} and up to {most:g}"
            )


def pool_of(plant: Plant, w: int, portion: Portion) -> int:
    """Index of the workload's pool for an offer; raises :class:`Refused` if there is none."""
    pools = [plant.site.nodes[int(nodes[0])] for nodes in plant.placement.workloads[w].nodes if len(nodes)]
    for p, node in enumerate(pools):
        if node.pool.name == portion.offer:
            return p
    for p, node in enumerate(pools):
        pool = node.pool
        if (
            (node.sku.model, pool.capacity_type) == (portion.gpu_model, portion.market)
            and portion.instance_type in ("", pool.instance_type)
            and portion.zone in ("", pool.zone)
        ):
            return p
    names = ", ".join(node.pool.name for node in pools)
    raise Refused(
        "invalid", f"mix: offer {portion.offer!r} is no pool that {plant.specs[w].workload} may use ({names})"
    )


def _check_resources(requested: Resources) -> None:
    if requested.gpu_profile is not None:
        raise Refused("invalid", f"resources.gpu_profile: {requested.gpu_profile!r}; these nodes have whole GPUs only")
    if requested.cpu is not None and not 0 < requested.cpu <= CPUS:
        raise Refused("invalid", f"resources.cpu: {requested.cpu:g} cores; a node has {CPUS}")
    if requested.memory_bytes is not None and not 0 < requested.memory_bytes <= MEMORY_BYTES:
        raise Refused("invalid", f"resources.memory_bytes: {requested.memory_bytes}; a node has {MEMORY_BYTES}")


def _merged(before: Resources | None, requested: Resources) -> Resources:
    if before is None:
        return requested
    return Resources(
        cpu=before.cpu if requested.cpu is None else requested.cpu,
        memory_bytes=before.memory_bytes if requested.memory_bytes is None else requested.memory_bytes,
    )
