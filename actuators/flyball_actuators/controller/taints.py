"""Nodes that taints reserve for some pods: whether any declared workload tolerates the taints."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, cast

from flyball_actuators.platforms.kubernetes.kinds import Object
from flyball_contracts.nodes.kubernetes import Taint


class Toleration(NamedTuple):
    """What pods tolerate; an empty key or effect stands for all, and ``operator`` is ``Equal`` or ``Exists``."""

    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: Taint) -> bool:
        """Whether pods with this toleration may start on a node with the taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


Tolerations: TypeAlias = frozenset[Toleration]
"""The tolerations of one object's pods."""


def tolerations_of(obj: Object) -> Tolerations:
    """The tolerations of an object's pods; if it has several kinds of pods, those of all kinds together."""
    return frozenset(
        Toleration(
            one.get("key") or "", one.get("operator") or "Equal", one.get("value") or "", one.get("effect") or ""
        )
        for one in _found(obj.get("spec"))
    )


def is_for_any(reserved: Sequence[Taint], workloads: Iterable[Tolerations]) -> bool:
    """Whether pods of at least one of the workloads tolerate all taints."""
    return not reserved or any(
        all(any(one.tolerates(taint) for one in tolerations) for taint in reserved) for tolerations in workloads
    )


def _found(part: object) -> Iterator[Object]:
    """Tolerations anywhere in a specification: each kind of object has its pods at another place."""
    if isinstance(part, list):
        for one in cast("list[object]", part):
            yield from _found(one)
    elif isinstance(part, dict):
        for key, value in cast("dict[str, object]", part).items():
            if key == "tolerations" and isinstance(value, list):
                yield from cast("list[Object]", value)
            else:
                yield from _found(value)
