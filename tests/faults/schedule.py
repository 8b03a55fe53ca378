"""When whom what happens to: a seeded schedule of kills and pauses."""

import random
from typing import Literal, NamedTuple

Kind = Literal["kill", "stop"]
SHARES = {"fleet": 12, "actuator-1": 12, "actuator-2": 12, "worker-1": 9, "worker-2": 9, "broker": 6}
"""How often each is hit, of 60 faults."""
RECOVERY_S = {"broker": 12.0, "worker-1": 16.0, "worker-2": 16.0}
"""Time that a victim is left alone after it is back, so that there is something to disturb."""
OTHERS_RECOVERY_S = 4.0
LONG_S = (11.0, 14.0)
"""Pauses longer than the session of a member of a consumer group."""
LONG_SHARE = 0.3
SHORT_S = (0.3, 3.0)
MAY_BE_LONG = frozenset({"actuator-1", "actuator-2", "worker-1", "worker-2"})


class Fault(NamedTuple):
    """``victim`` is killed, and started again ``for_s`` later; or it stands still for ``for_s``.

    ``at_s`` counts seconds of the wall clock from the start of the schedule.
    """

    at_s: float
    victim: str
    kind: Kind
    for_s: float

    @property
    def until_s(self) -> float:
        """When it is over."""
        return self.at_s + self.for_s


def schedule(seed: int, count: int, span_s: float) -> list[Fault]:
    """``count`` faults over about ``span_s`` seconds; the victims are hit independently, also at the same time.

    At least one pause is longer than a session, where anyone is hit who may have one.
    """
    random_ = random.Random(seed)
    shares = _whole(count)
    while True:
        found = [fault for victim in SHARES for fault in _of_one(random_, victim, shares[victim], span_s)]
        if any(fault.for_s > LONG_S[0] for fault in found) or not any(shares[victim] for victim in MAY_BE_LONG):
            return sorted(found)


def _of_one(random_: random.Random, victim: str, count: int, span_s: float) -> list[Fault]:
    """Faults of one victim, spread over the time, none before it has recovered from the one before."""
    found: list[Fault] = []
    rest_s = RECOVERY_S.get(victim, OTHERS_RECOVERY_S)
    free_s = 0.0
    for i in range(count):
        stop = random_.random() < 0.5
        long = stop and victim in MAY_BE_LONG and random_.random() < LONG_SHARE
        for_s = random_.uniform(*(LONG_S if long else SHORT_S))
        at_s = max(free_s, (i + random_.random()) * span_s / max(count, 1))
        found.append(Fault(round(at_s, 2), victim, "stop" if stop else "kill", round(for_s, 2)))
        free_s = at_s + for_s + rest_s
    return found


def _whole(count: int) -> dict[str, int]:
    """Whole numbers in the proportions of :data:`SHARES` that add up to ``count``."""
    total = sum(SHARES.values())
    whole = {victim: count * share // total for victim, share in SHARES.items()}
    for victim in list(SHARES)[: count - sum(whole.values())]:
        whole[victim] += 1
    return whole
