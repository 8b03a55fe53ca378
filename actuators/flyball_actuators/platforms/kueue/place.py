"""Node labels that a decision requires for a gang, and conflicts with Kueue's assignment."""

from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.kubernetes.api import Api, refused
from flyball_actuators.platforms.kubernetes.kinds import Object
from flyball_actuators.platforms.kueue.entry import GROUP, Entry
from flyball_contracts.records import Scale

ZONE, TYPE = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"


def place_of(api: Api, decision: Scale) -> dict[str, str] | Rejected:
    """Node labels of the offer that a decision chose; empty if it chose none.

    An offer with the name of a ResourceFlavor also gets that flavor's node labels.
    """
    parts = [part for part in decision.mix if part.replicas]
    if not parts:
        return {}
    if len(parts) > 1:
        names = " and ".join(part.offer for part in parts)
        return Rejected("unsupported", f"Kueue admits a gang to one place, and the decision names {names}; choose one")
    part = parts[0]
    flavor = _labels_of(api, part.offer)
    if isinstance(flavor, Rejected):
        return flavor
    own = {ZONE: part.zone, TYPE: part.instance_type}
    labels = flavor | {key: value for key, value in own.items() if value}
    if not labels:
        return Rejected(
            "invalid",
            f"offer {part.offer!r} names neither a zone nor an instance type, and is no ResourceFlavor with labels; "
            "say in worker.choice.offers where its machines are",
        )
    return labels


def conflicting_labels(api: Api, entry: Entry, place: dict[str, str]) -> str:
    """What in the Workload's flavors or pods conflicts with the labels; empty if nothing does.

    Raises :class:`PlatformError` if a flavor cannot be read.
    """
    for part in entry.assignments:
        flavors: dict[str, str] = part.get("flavors") or {}
        for flavor in sorted(set(flavors.values())):
            labels = _labels_of(api, flavor)
            if isinstance(labels, Rejected):
                raise PlatformError(labels.detail)
            conflict = _first_conflict(labels, place)
            if conflict:
                return f"Kueue gave it quota of flavor {flavor}, which has {conflict}"
    for part in entry.obj["spec"].get("podSets", ()):
        spec: Object = part.get("template", {}).get("spec") or {}
        conflict = _first_conflict(spec.get("nodeSelector") or {}, place)
        if conflict:
            return f"its pods require {conflict}"
    return ""


def _labels_of(api: Api, flavor: str) -> dict[str, str] | Rejected:
    answer = api.get(f"/apis/{GROUP}/resourceflavors/{flavor}")
    if answer.status == 404:
        return {}
    if not answer.ok:
        return refused(answer, f"reading ResourceFlavor {flavor}")
    return dict(answer.body.get("spec", {}).get("nodeLabels") or {})


def _first_conflict(labels: dict[str, str], place: dict[str, str]) -> str:
    return next((f"{key}={labels[key]}" for key in sorted(place) if labels.get(key, place[key]) != place[key]), "")
