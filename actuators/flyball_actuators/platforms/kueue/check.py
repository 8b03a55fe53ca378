"""The state of Flyball's admission check on an entry, written under the version that was read."""

from datetime import UTC, datetime
from typing import Any

from flyball_actuators.platforms.base import Rejected
from flyball_actuators.platforms.kubernetes.api import Api, refused
from flyball_actuators.platforms.kueue.entry import Check, Entry

JSON_PATCH = "application/json-patch+json"
_CHANGED = (409, 422)  # a test that fails is told as 422


def admit(
    api: Api, entry: Entry, name: str, found: Check, message: str, place: dict[str, str], by: str
) -> Rejected | bool:
    """Say Ready, with the labels of the nodes for each pod set; ``False`` where the entry has changed meanwhile."""
    state: dict[str, Any] = {
        "name": name,
        "state": "Ready",
        "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "message": message[:32_000],
    }
    if place:
        sets = [part["name"] for part in entry.thing["spec"].get("podSets", ())]
        state["podSetUpdates"] = [{"name": part, "nodeSelector": place} for part in sets]
    metadata = entry.thing["metadata"]
    body = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "replace", "path": f"/status/admissionChecks/{found.at}", "value": state},
    ]
    answer = api.call("PATCH", f"{entry.path}/status", body, (("fieldManager", by),), JSON_PATCH)
    if answer.ok:
        return True
    if answer.status in _CHANGED:
        fresh = api.get(entry.path)
        if fresh.ok and fresh.body["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            return False
    return refused(answer, f"admitting {metadata['namespace']}/{entry.name}")
