"""How labels raise limits: an anomaly of a kind that operators labelled false must be more extreme.

A weighted up-down procedure (Kaernbach 1991, doi:10.3758/BF03214307): a false incident makes its kind rarer by a
step of one bit, a true one takes back a third of a step. The limit stays where it is if three of four are true.
"""

import math
from collections.abc import Iterable

from flyball_contracts.records import Cause, Label, Symptom
from flyball_models.anomaly.peers import FAR_Z

UP_BITS = 1.0
DOWN_BITS = 1.0 / 3.0
MOST_BITS = 6.0
"""Evidence 64 times beyond the limit is always an incident, whatever the labels."""
Kind = tuple[Cause, str]


def strictness(labels: Iterable[Label]) -> dict[Kind, float]:
    """Bits by which limits of each cause and model of GPU are raised, 0..``MOST_BITS``; labels count in their order."""
    found: dict[Kind, float] = {}
    for label in sorted(labels, key=lambda one: (one.time_ns, one.key)):
        kind = label.cause, label.model
        bits = found.get(kind, 0.0) + (-DOWN_BITS if label.true else UP_BITS)
        found[kind] = min(MOST_BITS, max(0.0, bits))
    return {kind: bits for kind, bits in found.items() if bits > 0.0}


def passes(symptom: Symptom, bits: float) -> bool:
    """Whether a statistical symptom is ``bits`` bits beyond its limit; events and rules always pass.

    The odds of an anomaly's score are how many times rarer it is than the budget allows, or how many robust deviations
    a straggler is away from its peers.
    """
    if not symptom.statistical or bits <= 0.0:
        return True
    odds = symptom.score / max(1e-12, 1.0 - symptom.score)
    least = FAR_Z if symptom.detector == "straggling" else 1.0
    return math.log2(max(odds, 1e-12) / least) >= bits
