"""A strict fake of Compute Engine's managed instance groups, after its documented REST contract.

Request ids are UUIDs and not the zero UUID; the same one again gives the same operation and does nothing. Unknown
parameters and fields are refused. Machines take ``looks`` looks to come, and go at once.
"""

import re
import uuid
from pathlib import Path
from typing import Any

import yaml
from tests.clouds.fake import Call, CloudFake, Reply

from flyball_actuators.platforms.pools import cloud
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_contracts.config import PlatformConfig, PoolConfig

PROJECT, ZONE, CELL = "gpus", "europe-west4-a", "cell-a"
_BASE = rf"/compute/v1/projects/{PROJECT}/zones/{ZONE}"
_GROUP = re.compile(rf"{_BASE}/instanceGroupManagers/([a-z0-9-]+)(?:/(\w+))?(?:/([a-z0-9_-]+))?(?:/(cancel))?")
_OPERATION = re.compile(rf"{_BASE}/operations(?:/(\S+))?")
ROLE = Path(__file__).resolve().parents[2] / "infra" / "gcp" / "actuator-role.yaml"
_RIGHTS = {"get": "get", "listManagedInstances": "list"}
_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")


class GcpFake(CloudFake):
    """Groups by name; ``capacity`` machines are left in the zone, ``None``: any number.

    ``fails`` is the error with which the next operation ends, or the next resize request, which then did nothing.
    """

    def __init__(self) -> None:
        super().__init__(yaml.safe_load(ROLE.read_text())["includedPermissions"])
        self.groups: dict[str, dict[str, Any]] = {}
        self.capacity: int | None = None
        self.looks = 1
        self.fails: dict[str, str] | None = None
        self._operations: dict[str, dict[str, Any]] = {}
        self._count = 0

    # Arranging and judging

    def pool(self, kind: Any, machines: int = 0, **more: Any) -> PoolConfig:
        """A new group."""
        self._count += 1
        name = f"mig-{self._count}"
        self.groups[name] = {"target": 0, "machines": {}, "requests": {}}
        self._resize(self.groups[name], name, machines)
        self._settle(self.groups[name])
        settings: dict[str, Any] = {"max_machines": 8, "price_usd_per_hour": 30.0, **more}
        return PoolConfig(name=name, kind=kind, resource=name, within=ZONE, instance_type="a2-highgpu-8g", **settings)

    def size(self, pool: PoolConfig) -> int:
        """Machines that are there, and paid for."""
        return len([m for m in self.groups[pool.resource]["machines"].values() if m["looks"] is not None])

    def interrupt(self, pool: PoolConfig) -> str:
        """Take back one machine, as spot does; the group makes it again."""
        machines = self.groups[pool.resource]["machines"]
        name: str = sorted(machines)[-1]
        machines[name]["looks"] = self.looks
        return name

    def platform(self, *pools: PoolConfig, busy: frozenset[str] = frozenset(), **more: Any) -> PoolPlatform:
        """A driver that knows nothing yet."""
        made = cloud(self.entry(*pools, **more), "actuator.platforms[0]", lambda _: busy)
        assert isinstance(made, PoolPlatform)
        return made

    def entry(self, *pools: PoolConfig, **more: Any) -> PlatformConfig:
        """The entry of the configuration for these pools."""
        settings: dict[str, Any] = {"budget_usd_per_hour": 1000.0, "timeout_s": 20.0, "poll_s": 0.05, **more}
        return PlatformConfig(cells=(CELL,), driver="gcp", account=PROJECT, url=self.url, pools=pools, **settings)

    # The contract

    def verb(self, call: Call) -> str:
        found = _GROUP.fullmatch(call.path)
        if found is None:
            return "operations"
        return f"{call.method} {found[4] or found[2] or 'get'}"

    def right(self, call: Call) -> str:
        found = _GROUP.fullmatch(call.path)
        if found is None:
            return f"compute.zoneOperations.{'list' if call.path.endswith('/operations') else 'get'}"
        what = "get" if call.method == "GET" else found[2]
        return f"compute.instanceGroupManagers.{_RIGHTS.get(what, 'update')}"

    def refusal(self, status: int, code: str, message: str) -> Reply:
        reasons = [{"reason": code, "message": message, "domain": "global"}]
        return Reply(status, {"error": {"code": status, "message": f"{message} ({code})", "errors": reasons}})

    def answer(self, call: Call) -> Reply:
        query = {k: v for k, v in call.query.items() if not k.startswith("$")}
        operation = _OPERATION.fullmatch(call.path)
        if operation is not None:
            return self._show_operations(operation[1], query)
        found = _GROUP.fullmatch(call.path)
        if found is None:
            return self.refusal(404, "notFound", f"no method {call.path}")
        name, what, which, action = found.groups()
        group = self.groups.get(name)
        if group is None:
            return self.refusal(404, "notFound", f"The resource {name} was not found")
        self._settle(group)
        if call.method == "GET" and what == "resizeRequests":
            request = group["requests"].get(which)
            return Reply(200, request) if request else self.refusal(404, "notFound", f"no request {which}")
        if call.method == "GET" and what is None:
            return Reply(200, {"name": name, "targetSize": group["target"]})
        if what == "listManagedInstances":
            return Reply(200, {"managedInstances": [_shown(n, m) for n, m in sorted(group["machines"].items())]})
        return self._change(call, name, group, what, which, action, query)

    def _change(
        self, call: Call, name: str, group: dict[str, Any], what: str | None, which: str | None, action: str | None,
        query: dict[str, str],
    ) -> Reply:  # fmt: skip
        request_id = query.pop("requestId", "")
        if request_id:
            try:
                zero = uuid.UUID(request_id).int == 0
            except ValueError:
                zero = True
            if zero:
                return self.refusal(400, "invalid", "requestId must be a UUID, and not zero")
            for known in self._operations.values():
                if known["clientOperationId"] == request_id:
                    return Reply(200, known)
        fails = {} if self.fails is None else {"error": {"errors": [self.fails]}}
        self.fails = None
        if fails and what == "resizeRequests" and which is None:
            group["requests"][call.body["name"]] = {**call.body, "state": "FAILED", "status": fails}
            fails = {}
        elif fails:
            pass
        elif what == "resize" and set(query) == {"size"}:
            self._resize(group, name, int(query["size"]))
        elif what == "deleteInstances" and not query and set(call.body) == {"instances"}:
            names = [one.rsplit("/", 1)[1] for one in call.body["instances"]]
            if unknown := [one for one in names if one not in group["machines"]]:
                return self.refusal(400, "invalid", f"{unknown} are not in the group")
            for one in names:
                del group["machines"][one]
            group["target"] -= len(names)
        elif what == "resizeRequests" and which is None and set(call.body) == {"name", "resizeBy"} and not query:
            if not _NAME.fullmatch(call.body["name"]):
                return self.refusal(400, "invalid", f"{call.body['name']!r} is no name")
            if call.body["name"] in group["requests"]:
                return self.refusal(409, "alreadyExists", f"{call.body['name']} exists")
            group["requests"][call.body["name"]] = {**call.body, "state": "ACCEPTED"}
        elif action == "cancel" and which in group["requests"] and not query:
            group["requests"][which]["state"] = "CANCELLED"
        else:
            return self.refusal(400, "invalid", f"{call.method} {call.path} {query} {call.body}")
        operation: dict[str, Any] = {
            "name": f"operation-{len(self._operations) + 1}", "status": "DONE", "clientOperationId": request_id,
            "operationType": what, **fails,
        }  # fmt: skip
        self._operations[operation["name"]] = operation
        return Reply(200, operation)

    def _show_operations(self, name: str | None, query: dict[str, str]) -> Reply:
        if name is not None:
            found = self._operations.get(name)
            return Reply(200, found) if found else self.refusal(404, "notFound", f"no operation {name}")
        wanted = re.fullmatch(r'clientOperationId = "([0-9a-f-]{36})"', query.get("filter", ""))
        if wanted is None:
            return self.refusal(400, "invalid", f"filter {query.get('filter')!r}")
        return Reply(200, {"items": [o for o in self._operations.values() if o["clientOperationId"] == wanted[1]]})

    def _resize(self, group: dict[str, Any], name: str, size: int) -> None:
        group["target"] = size
        machines = group["machines"]
        while len(machines) > size:  # the group chooses, which a driver must not let it
            del machines[max(machines, key=lambda one: machines[one]["looks"] is None)]
        while len(machines) < size:
            self._count += 1
            left = self.capacity is None or self.capacity > 0
            if self.capacity and left:
                self.capacity -= 1
            machines[f"{name}-{self._count:04d}"] = {"looks": self.looks if left else None}

    def _settle(self, group: dict[str, Any]) -> None:
        for machine in group["machines"].values():
            if machine["looks"]:
                machine["looks"] -= 1
        for request in group["requests"].values():
            if request["state"] == "ACCEPTED" and (self.capacity is None or self.capacity >= request["resizeBy"]):
                request["state"] = "SUCCEEDED"
                name = next(n for n, g in self.groups.items() if g is group)
                self._resize(group, name, group["target"] + request["resizeBy"])


def _shown(name: str, machine: dict[str, Any]) -> dict[str, Any]:
    link = f"https://www.googleapis.com{_BASE}/instances/{name}"
    if machine["looks"] == 0:
        return {"instance": link, "id": str(int(name[-4:])), "instanceStatus": "RUNNING", "currentAction": "NONE"}
    errors = [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": "The zone does not have enough resources"}]
    lacks = {"lastAttempt": {"errors": {"errors": errors}}} if machine["looks"] is None else {}
    return {"instance": link, "id": "0", "currentAction": "CREATING", **lacks}
