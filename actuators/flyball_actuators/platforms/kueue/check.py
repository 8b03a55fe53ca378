"""Writes the state of Flyball's admission check on a Workload, with the resource version that was read."""

from datetime import UTC, datetime
from typing import Any

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import Api, refused
from flyball_actuators.platforms.kueue.entry import Check, Entry

JSON_PATCH = "application/json-patch+json"
_CHANGED = (409, 422)  # a failed JSON patch test returns 422


def admit(
    api: Api, entry: Entry, name: str, found: Check, message: str, place: dict[str, str], by: str
) -> Rejected | bool:
    """Set Ready, with node labels for each pod set; ``False`` if the Workload has changed meanwhile."""
    sets = [part["name"] for part in entry.obj["spec"].get("podSets", ())]
    updates = [{"name": part, "nodeSelector": place} for part in sets] if place else []
    return _write_state(api, entry, name, found, {"state": "Ready", "message": message, "podSetUpdates": updates}, by)


def evict(api: Api, entry: Entry, name: str, found: Check, message: str, by: str, *, dry_run: bool) -> Rejected | bool:
    """Set Retry: Kueue stops the gang, queues it again, and asks the check again once there is quota."""
    return _write_state(api, entry, name, found, {"state": "Retry", "message": message}, by, dry_run=dry_run)


def _write_state(
    api: Api, entry: Entry, name: str, found: Check, state: dict[str, Any], by: str, *, dry_run: bool = False
) -> Rejected | bool:
    metadata, now = entry.obj["metadata"], f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    body = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {
            "op": "replace",
            "path": f"/status/admissionChecks/{found.at}",
            "value": {**state, "name": name, "lastTransitionTime": now},
        },
    ]
    query = (("fieldManager", by), *((("dryRun", "All"),) if dry_run else ()))
    answer = api.call("PATCH", f"{entry.path}/status", body, query, JSON_PATCH)
    if answer.ok:
        return True
    if answer.status in _CHANGED:
        fresh = api.get(entry.path)
        if fresh.ok and fresh.body["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            return False
    return refused(answer, f"answering for {metadata['namespace']}/{entry.name}")
