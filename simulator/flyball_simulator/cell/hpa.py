"""The Kubernetes horizontal pod autoscaler, for services, on the utilization of their replicas.

As ``kubernetes/kubernetes:pkg/controller/podautoscaler`` (``autoscaling/v2``) with its default behavior: one
recommendation per 15 s, no change within 10 % of the target; up by at most 100 % or 4 pods in 15 s, without delay; down
to the highest recommendation of the last 300 s. Pods that are not ready count as idle when scaling up.
"""

import math
from collections import deque

from flyball_simulator.cell.plant import Plant

SYNC_S, TOLERANCE, STABILISE_S = 15.0, 0.1, 300.0
UP_RATIO, UP_PODS = 2, 4
TARGET = 0.7
"""Target utilization, as most guides recommend."""


class PodAutoscaler:
    """Scales one service."""

    def __init__(self, least: int, most: int, target: float) -> None:
        self._least, self._most, self._target = least, most, target
        self._recommended: deque[tuple[float, int]] = deque()

    def recommend(self, t_s: float, replicas: int, ready: int, utilization: float) -> int:
        """Number of replicas to set; ``utilization`` is the mean of the ready ones."""
        if not replicas:
            return 0  # scaled to none: it does nothing
        desired = self._desired(replicas, ready, utilization)
        self._recommended.append((t_s, desired))
        while self._recommended[0][0] < t_s - STABILISE_S:
            self._recommended.popleft()
        if desired > replicas:
            desired = min(desired, max(UP_RATIO * replicas, replicas + UP_PODS))
        else:
            desired = min(replicas, max(number for _, number in self._recommended))
        return min(max(desired, self._least), self._most)

    def _desired(self, replicas: int, ready: int, utilization: float) -> int:
        if not ready:
            return replicas  # no metrics
        ratio = utilization / self._target
        if abs(ratio - 1.0) <= TOLERANCE:
            return replicas
        if ratio > 1.0 and ready < replicas:
            ratio *= ready / replicas
            return replicas if ratio <= 1.0 + TOLERANCE else math.ceil(ratio * replicas - 1e-9)
        return math.ceil(ratio * ready - 1e-9)


class Autoscalers:
    """One autoscaler for each service of a plant."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._each = [PodAutoscaler(s.min_replicas, s.max_replicas, TARGET) for s in plant.config.services]
        self._served_s = [0.0] * len(self._each)
        self._seen_s = 0.0

    def advance(self) -> None:
        """Measure a tick, and every 15 s set the number of replicas from the next tick on."""
        plant, dt_s = self._plant, self._plant.config.tick_s
        t_s = (plant.index - 1) * dt_s
        for w, busy in enumerate(plant.services.busy.tolist()):
            self._served_s[w] += busy * dt_s
        self._seen_s += dt_s
        if t_s // SYNC_S == (t_s - dt_s) // SYNC_S:
            return
        for w, autoscaler in enumerate(self._each):
            wanted = plant.placement.wanted[w]
            utilization = self._served_s[w] / self._seen_s
            replicas = autoscaler.recommend(t_s, wanted, min(plant.ready(w), wanted), utilization)
            if replicas != wanted:
                plant.scale(w, replicas)
        self._served_s, self._seen_s = [0.0] * len(self._each), 0.0
