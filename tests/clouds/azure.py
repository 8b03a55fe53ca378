"""A strict fake of Azure's scale sets, after their documented contract.

``If-Match`` must be the current ETag, else 412. PATCH replaces tags as a whole. What takes long is followed by its
operation; machines come once it is over. Unknown fields and parameters are refused.
"""

import json
import re
from pathlib import Path
from typing import Any

from tests.clouds.fake import Call, CloudFake, Reply

from flyball_actuators.platforms.pools import cloud
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_contracts.config import PlatformConfig, PoolConfig

SUBSCRIPTION, GROUP, CELL, SIZE = "00000000-0000-0000-0000-000000000001", "gpus", "cell-a", "Standard_ND96asr_v4"
_BASE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets"
_SET = re.compile(rf"{_BASE}/([a-z0-9-]+)(?:/(virtualMachines|delete))?")
ROLE = Path(__file__).resolve().parents[2] / "infra" / "azure" / "actuator-role.json"
_OF_SETS = "Microsoft.Compute/virtualMachineScaleSets"
_RIGHTS = {"GET virtualMachines": "/virtualMachines/read", "POST delete": "/delete/action", "PATCH set": "/write"}
_OPERATION = re.compile(rf"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eu/operations/(\d+)")


class AzureFake(CloudFake):
    """Scale sets by name; ``capacity`` machines are left, ``None``: any number. ``looks`` is how long all takes."""

    def __init__(self) -> None:
        super().__init__(json.loads(ROLE.read_text())["Actions"])
        self.sets: dict[str, dict[str, Any]] = {}
        self.capacity: int | None = None
        self.looks = 1
        self._operations: list[dict[str, Any]] = []
        self._count = 0

    # Arranging and judging

    def pool(self, machines: int = 0, market: Any = "on_demand", **more: Any) -> PoolConfig:
        """A new scale set."""
        self._count += 1
        name = f"vmss-{self._count}"
        self.sets[name] = {
            "capacity": machines, "tags": {"owner": "ml"}, "etag": 1, "spot": market == "spot", "next": machines,
            "machines": {str(i): {"state": "Succeeded", "protected": False} for i in range(machines)},
        }  # fmt: skip
        settings: dict[str, Any] = {"max_machines": 8, "price_usd_per_hour": 27.0, **more}
        return PoolConfig(
            name=name, kind="scale_set", resource=name, within=GROUP, instance_type=SIZE, market=market, **settings
        )

    def size(self, pool: PoolConfig) -> int:
        """Machines that are there, or will be, and paid for."""
        return len([m for m in self.sets[pool.resource]["machines"].values() if m["state"] != "Failed"])

    def interrupt(self, pool: PoolConfig) -> str:
        """Evict a machine, as spot does."""
        found = self.sets[pool.resource]
        name: str = sorted(found["machines"])[-1]
        del found["machines"][name]
        found["capacity"] -= 1
        found["etag"] += 1
        return name

    def platform(self, *pools: PoolConfig, busy: frozenset[str] = frozenset(), **more: Any) -> PoolPlatform:
        """A driver that knows nothing yet."""
        made = cloud(self.entry(*pools, **more), "actuator.platforms[0]", lambda _: busy)
        assert isinstance(made, PoolPlatform)
        return made

    def entry(self, *pools: PoolConfig, **more: Any) -> PlatformConfig:
        """The entry of the configuration for these pools."""
        settings: dict[str, Any] = {"budget_usd_per_hour": 1000.0, "timeout_s": 20.0, "poll_s": 0.05, **more}
        return PlatformConfig(
            cells=(CELL,), driver="azure", account=SUBSCRIPTION, url=self.url, pools=pools, **settings
        )

    # The contract

    def verb(self, call: Call) -> str:
        found = _SET.fullmatch(call.path)
        return f"{call.method} {found[2] or 'set'}" if found else "operations"

    def right(self, call: Call) -> str:
        if self.verb(call) == "operations":
            return "Microsoft.Compute/locations/operations/read"
        return _OF_SETS + _RIGHTS.get(self.verb(call), "/read")

    def refusal(self, status: int, code: str, message: str) -> Reply:
        return Reply(status, {"error": {"code": code, "message": message}})

    def answer(self, call: Call) -> Reply:
        query = dict(call.query)
        if query.pop("api-version", "") < "2024-07-01":
            return self.refusal(400, "InvalidApiVersionParameter", "ETags need 2024-07-01")
        operation = _OPERATION.fullmatch(call.path)
        if operation is not None:
            return self._follow(int(operation[1]))
        found = _SET.fullmatch(call.path)
        state = self.sets.get(found[1]) if found else None
        if found is None or state is None:
            return self.refusal(404, "ResourceNotFound", f"{call.path} was not found")
        if call.method == "GET" and found[2] is None and not query:
            self._settle()
            return Reply(200, self._shown(found[1], state))
        if call.method == "GET" and query == {"$expand": "instanceView"}:
            return Reply(200, {"value": [_machine(found[1], n, m) for n, m in sorted(state["machines"].items())]})
        if call.method == "PATCH" and not query and set(call.body) <= {"sku", "tags"}:
            return self._update(call, found[1], state)
        if found[2] == "delete" and not query and set(call.body) == {"instanceIds"}:
            return self._delete(call, state)
        return self.refusal(400, "InvalidParameter", f"{call.method} {call.path} {query} {call.body}")

    def _update(self, call: Call, name: str, state: dict[str, Any]) -> Reply:
        wanted = call.headers.get("if-match")
        if wanted is not None and wanted != f'"{state["etag"]}"':
            return self.refusal(412, "PreconditionFailed", f"the ETag is not {wanted}")
        if any(len(value) > 256 for value in call.body.get("tags", {}).values()):
            return self.refusal(400, "InvalidTagValueLength", "a tag value has at most 256 characters")
        state["etag"] += 1
        state["tags"] = call.body.get("tags", state["tags"])
        more = call.body["sku"]["capacity"] - state["capacity"] if "sku" in call.body else 0
        if more < 0:  # the scale set chooses, which a driver must not let it where it could choose
            for one in sorted(state["machines"])[more:]:
                del state["machines"][one]
        state["capacity"] += more
        lacks = False
        for _ in range(max(0, more)):
            left = self.capacity is None or self.capacity > 0
            lacks = lacks or not left
            self.capacity = self.capacity - 1 if self.capacity else self.capacity
            state["machines"][str(state["next"])] = {"state": "Creating" if left else "Failed", "protected": False}
            state["next"] += 1
        error = {"code": "AllocationFailed", "message": "We do not have sufficient capacity"} if lacks else None
        return Reply(200, self._shown(name, state), self._begun(error))

    def _delete(self, call: Call, state: dict[str, Any]) -> Reply:
        for one in call.body["instanceIds"]:
            machine = state["machines"].get(one)
            if machine is None:
                return self.refusal(400, "InvalidParameter", f"{one} is not an active Virtual Machine Scale Set VM")
            if machine["protected"]:
                return self.refusal(409, "OperationNotPermitted", f"{one} is protected")
            if machine["state"] != "Deleting":
                machine["state"] = "Deleting"
                state["capacity"] -= 1
        state["etag"] += 1
        return Reply(202, None, self._begun(None))

    def _begun(self, error: dict[str, str] | None) -> dict[str, str]:
        self._operations.append({"looks": self.looks, "error": error})
        path = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/eu/operations"
        return {"Azure-AsyncOperation": f"{self.url}{path}/{len(self._operations)}?api-version=2026-04-01"}

    def _follow(self, number: int) -> Reply:
        operation = self._operations[number - 1]
        operation["looks"] = max(0, operation["looks"] - 1)
        if operation["looks"]:
            return Reply(200, {"status": "InProgress"})
        if operation["error"]:
            return Reply(200, {"status": "Failed", "error": operation["error"]})
        return Reply(200, {"status": "Succeeded"})

    def _settle(self) -> None:
        for operation in self._operations:
            operation["looks"] = max(0, operation["looks"] - 1)
        if any(operation["looks"] for operation in self._operations):
            return
        for state in self.sets.values():
            for name, machine in list(state["machines"].items()):
                if machine["state"] == "Deleting":
                    del state["machines"][name]
                elif machine["state"] == "Creating":
                    machine["state"] = "Succeeded"

    def _shown(self, name: str, state: dict[str, Any]) -> dict[str, Any]:
        profile = {"priority": "Spot", "evictionPolicy": "Delete"} if state["spot"] else {}
        return {
            "name": name, "location": "eu", "tags": state["tags"], "etag": f'"{state["etag"]}"',
            "sku": {"name": SIZE, "tier": "Standard", "capacity": state["capacity"]},
            "properties": {"provisioningState": "Succeeded", "virtualMachineProfile": profile},
        }  # fmt: skip


def _machine(name: str, number: str, machine: dict[str, Any]) -> dict[str, Any]:
    running = [{"code": "PowerState/running"}] if machine["state"] == "Succeeded" else []
    return {
        "name": f"{name}_{number}", "instanceId": number, "location": "eu",
        "properties": {
            "provisioningState": machine["state"], "timeCreated": f"2026-11-24T00:00:{int(number):02d}Z",
            "osProfile": {"computerName": f"{name}{int(number):06d}"}, "instanceView": {"statuses": running},
            "protectionPolicy": {"protectFromScaleIn": machine["protected"]},
        },
    }  # fmt: skip
