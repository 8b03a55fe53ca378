"""Replicas that inventories do not show any more: an agent that leaves them out must not free quota."""

from flyball_actuators.guard import UNSEEN_S, Placed, World


class RecentlyHeld:
    """Keeps, for ``UNSEEN_S`` seconds, how many replicas a workload had before inventories showed fewer of it."""

    def __init__(self) -> None:
        self._placed: Placed = {}
        self._fell: dict[tuple[str, str], tuple[int, int]] = {}

    def added_to(self, world: World, now_ns: int) -> World:
        """The world with what its workloads held until shortly before ``now_ns``."""
        if world.placed is not self._placed:
            for cell, workloads in self._placed.items():
                shown = world.placed.get(cell, {})
                for workload, replicas in workloads.items():
                    if len(shown.get(workload, ())) < len(replicas):
                        most, _ = self._fell.get((cell, workload), (0, 0))
                        self._fell[cell, workload] = max(most, len(replicas)), now_ns
            self._placed = world.placed
        since_ns = now_ns - round(UNSEEN_S * 1e9)
        self._fell = {key: fell for key, fell in self._fell.items() if fell[1] > since_ns}
        return world._replace(held={key: most for key, (most, _) in self._fell.items()}) if self._fell else world
