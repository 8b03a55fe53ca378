"""What becomes of a decision when a newer one on its subject is refused."""

from collections.abc import Mapping

from flyball_contracts.records import AnyDecision, Check, Migrate, Scale


def still_wanted(older: AnyDecision, refused: AnyDecision) -> bool:
    """Whether the older decision does a part of what the refused one asked for, and nothing else.

    A step towards the refused number of replicas is such a part; a step away from it or beyond it is not.
    """
    if isinstance(older, Check) or isinstance(refused, Check):
        return isinstance(older, Check) and isinstance(refused, Check) and older.devices == refused.devices
    if isinstance(older, Migrate) or isinstance(refused, Migrate):
        return isinstance(older, Migrate) and isinstance(refused, Migrate) and older.to_node == refused.to_node
    if not _is_between(older.replicas_before, older.replicas, refused.replicas):
        return False
    if not set(older.victims) <= set(refused.victims):
        return False
    if not isinstance(older, Scale):
        return True
    if not isinstance(refused, Scale):
        return older.resources is None and older.power_limit_w is None and not older.mix
    if older.resources != refused.resources or older.power_limit_w not in (None, refused.power_limit_w):
        return False
    wanted = _by_offer(refused)
    return bool(older.mix) == bool(refused.mix) and all(
        _is_between(part.replicas_before, part.replicas, wanted.get(part.offer, 0)) for part in older.mix
    )


def _is_between(before: int, after: int, wanted: int) -> bool:
    return min(before, wanted) <= after <= max(before, wanted)


def _by_offer(scale: Scale) -> Mapping[str, int]:
    return {part.offer: part.replicas for part in scale.mix}
