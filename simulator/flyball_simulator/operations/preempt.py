"""Preempt: stops replicas without starting others in their place."""

from msgspec.structs import replace

from flyball_contracts.records import Preempt, SubjectState
from flyball_simulator.cell.plant import Plant
from flyball_simulator.operations.base import Progress, Refused


class PreemptTask:
    """Done when the victims have released their GPUs; without names, the newest replicas are the victims."""

    def __init__(self, plant: Plant, w: int, decision: Preempt) -> None:
        self._plant, self._w, self._decision = plant, w, decision
        placement = plant.placement
        live = placement.live(w)
        stays = min(decision.replicas, len(live))
        placement.check(w, stays)
        if decision.victims:
            self._victims = [placement.find(w, name) for name in dict.fromkeys(decision.victims)]
            left = len(live) - len(self._victims)
            if left != decision.replicas:
                name = plant.specs[w].workload
                raise Refused(
                    "conflict",
                    f"{name}: {len(live)} replicas run, so {left} are left without {len(self._victims)} victims, "
                    f"not {decision.replicas}; look again and decide again",
                )
        else:
            self._victims = live[stays:]
        self._stays = stays
        self.names = tuple(victim.name for victim in self._victims)

    def expected(self, before: SubjectState) -> SubjectState:
        """The victims on no node."""
        nodes = dict.fromkeys(self.names, "")
        stays = self._stays
        return replace(before, replicas=stays, ready=stays, nodes=nodes, suspended=stays == 0, version="")

    def begin(self) -> None:
        """Stop the victims."""
        self._plant.preempt(self._w, self._victims, self._decision.checkpoint)

    def advance(self) -> Progress:
        """Count the victims that still exist."""
        placed = self._plant.placement.placed[self._w]
        there = sum(victim in placed for victim in self._victims)
        name, until_ns = self._plant.specs[self._w].workload, self._decision.until_ns
        if there:
            return Progress("running", f"{name}: {there} of {len(self._victims)} replicas are still stopping")
        until = "" if until_ns is None else f"; it may come back at {until_ns} ns"
        return Progress("done", f"{name}: {len(self._victims)} replicas stopped, {self._stays} run on{until}")

    def supersede(self) -> bool:
        """Stopping victims still stop."""
        return False
