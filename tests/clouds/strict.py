"""A strict proxy before moto: it closes the gaps that would hide a fault, and makes the faults that clouds make.

What it holds to is AWS's documentation: request tokens, bounds and cooldowns of groups, capacity that ends, machines
that are shown late, updates that take a while, throttling, missing rights, and connections that break.
"""

import http.client
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit
from xml.etree import ElementTree

from tests.clouds.iam import Policy, Resources

_EKS = {
    ("POST", "update-config"): "UpdateNodegroupConfig",
    ("GET", "node-groups"): "DescribeNodegroup",
    ("GET", "updates"): "DescribeUpdate",
    ("POST", "tags"): "TagResource",
}
_ASG = "http://autoscaling.amazonaws.com/doc/2011-01-01/"
POLICY = Path(__file__).resolve().parents[2] / "infra" / "aws" / "actuator-policy.json"


class Asked(NamedTuple):
    """One request: ``action`` as IAM calls it."""

    action: str
    method: str
    path: str
    form: dict[str, str]
    body: bytes
    headers: dict[str, str]


class Answer(NamedTuple):
    """What goes back."""

    status: int
    body: bytes
    kind: str = "text/xml"
    error: str = ""


class Refusal(Exception):
    """AWS says no."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


class StrictAws:
    """The proxy; ``calls`` are the actions asked for, ``capacity`` the machines of a type that are left (none: any).

    ``cut[action]`` is where the next connection breaks, ``before`` the cloud hears of it or ``after``, and ``on_cut``
    is called then. ``throttled[action]`` calls are throttled, ``denied`` actions are not permitted, nor is what
    ``policy`` does not give on the ``resources`` of a request; the next call of one in ``errors`` is refused with
    that. New machines are shown ``lag_s`` late, and a fleet that lacks capacity
    says ``lacks``. An update of a node group takes ``update_looks`` looks, and ends with ``update_errors`` if any.
    """

    def __init__(self, moto: str) -> None:
        self._moto = urlsplit(moto).netloc
        self.policy = Policy(json.loads(POLICY.read_text()))
        self.resources: Resources | None = None
        self.calls: Counter[str] = Counter()
        self.capacity: dict[str, int] = {}
        self.cut: dict[str, str] = {}
        self.on_cut: Callable[[], object] = lambda: None
        self.throttled: Counter[str] = Counter()
        self.denied: set[str] = set()
        self.errors: dict[str, Refusal] = {}
        self.lacks = "InsufficientInstanceCapacity"
        self.update_errors: list[dict[str, str]] = []
        self.lag_s = 0.0
        self.update_looks = 1
        self.cooldown_s = 0.0
        self.issues: list[dict[str, str]] = []
        self._tokens: dict[str, tuple[str, Answer]] = {}
        self._shown_s: dict[str, float] = {}
        self._wanted: dict[str, int] = {}
        self._activities: dict[str, list[tuple[str, str, str]]] = {}
        self._scaled_s: dict[str, float] = {}
        self._ended: set[str] = set()
        self._updates: dict[str, int] = {}
        self._tags: dict[str, dict[str, str]] = {}
        self._lock = threading.RLock()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy.serve(self)

            do_POST = do_GET

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def calm(self) -> None:
        """No more faults."""
        self.capacity, self.cut, self.denied, self.lag_s = {}, {}, set(), 0.0
        self.throttled.clear()
        self.calls.clear()
        self.cooldown_s, self.issues, self.on_cut = 0.0, [], lambda: None
        self.errors, self.lacks, self.update_errors = {}, "InsufficientInstanceCapacity", []

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        asked = _asked(request, body)
        with self._lock:
            self.calls[asked.action] += 1
            cut = self.cut.pop(asked.action, "")
            try:
                answer = None if cut == "before" else self._answer(asked)
            except Refusal as no:
                answer = _error(asked, no)
        if cut:
            self.on_cut()
            request.close_connection = True
            return
        assert answer is not None
        try:
            request.send_response(answer.status)
            request.send_header("Content-Type", answer.kind)
            request.send_header("Content-Length", str(len(answer.body)))
            request.send_header("x-amzn-RequestId", str(uuid.uuid4()))
            if answer.error:
                request.send_header("x-amzn-ErrorType", answer.error)
            request.end_headers()
            request.wfile.write(answer.body)
        except OSError:
            request.close_connection = True

    def _answer(self, asked: Asked) -> Answer:
        if self.throttled[asked.action] > 0:
            self.throttled[asked.action] -= 1
            code = "RequestLimitExceeded" if asked.action.startswith("ec2:") else "Throttling"
            raise Refusal(code, "Rate exceeded", 503 if code == "RequestLimitExceeded" else 400)
        if asked.action in self.errors:
            raise self.errors.pop(asked.action)
        assert self.resources is not None
        lacks = self.policy.lacks(self.resources.needed(asked.action, asked.path, asked.form))
        if asked.action in self.denied or lacks:
            code = "UnauthorizedOperation" if asked.action.startswith("ec2:") else "AccessDenied"
            raise Refusal(code, f"not authorized: {lacks}", 403)
        special = {
            "ec2:CreateFleet": self._create_fleet,
            "ec2:DescribeInstances": self._describe_instances,
            "autoscaling:SetDesiredCapacity": self._set_desired,
            "autoscaling:TerminateInstanceInAutoScalingGroup": self._terminate_in_group,
            "autoscaling:DescribeAutoScalingGroups": self._describe_groups,
            "autoscaling:DescribeScalingActivities": self._describe_activities,
            "eks:UpdateNodegroupConfig": self._update_node_group,
            "eks:DescribeUpdate": self._describe_update,
            "eks:DescribeNodegroup": self._describe_node_group,
            "eks:TagResource": self._tag,
        }.get(asked.action)
        return special(asked) if special else self._forward(asked)

    def _forward(self, asked: Asked, form: dict[str, str] | None = None, body: bytes | None = None) -> Answer:
        if form is not None:
            body = urlencode(form).encode()
        connection = http.client.HTTPConnection(self._moto, timeout=30.0)
        try:
            sent = asked.body if body is None else body
            connection.request(asked.method, asked.path, sent, {**asked.headers, "Content-Length": str(len(sent))})
            response = connection.getresponse()
            answer = Answer(
                response.status,
                response.read(),
                response.getheader("Content-Type") or "text/xml",
                response.getheader("x-amzn-ErrorType") or "",
            )
        finally:
            connection.close()
        if answer.status == 500:  # moto breaks where AWS would refuse
            raise Refusal("ValidationError", f"{asked.action} names something that is not there")
        return answer

    # EC2

    def _create_fleet(self, asked: Asked) -> Answer:
        form = dict(asked.form)
        token = form.pop("ClientToken", "")
        if form.get("DryRun") == "true":
            raise Refusal("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        said = json.dumps(sorted(form.items()))
        if token in self._tokens:
            before, answer = self._tokens[token]
            if before != said:
                raise Refusal("IdempotentParameterMismatch", "the token was used with other parameters")
            return answer
        key = "TargetCapacitySpecification.TotalTargetCapacity"
        kind = form["LaunchTemplateConfigs.1.Overrides.1.InstanceType"]
        asked_for = int(form[key])
        left = min(asked_for, self.capacity.get(kind, asked_for))
        errors = (
            f"<errorSet><item><errorCode>{self.lacks}</errorCode><errorMessage>no {kind} left"
            "</errorMessage></item></errorSet>"
            if left < asked_for
            else ""
        )
        if left:
            answer = self._forward(asked, {**asked.form, key: str(left)})
            body = answer.body.decode()
            for element in ElementTree.fromstring(body).iter():
                if element.tag.endswith("}item") and element.text and element.text.startswith("i-"):
                    self._shown_s[element.text] = time.monotonic() + self.lag_s
            if errors:
                body = body.replace("</CreateFleetResponse>", f"{errors}</CreateFleetResponse>")
            answer = answer._replace(body=body.encode())
        else:
            answer = Answer(
                200,
                f'<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>'
                f"<fleetId>fleet-{uuid.uuid4()}</fleetId>{errors}<fleetInstanceSet/></CreateFleetResponse>".encode(),
            )
        if kind in self.capacity:
            self.capacity[kind] -= left
        self._tokens[token] = (said, answer)
        return answer

    def _describe_instances(self, asked: Asked) -> Answer:
        answer = self._forward(asked)
        now_s = time.monotonic()
        hidden = {name for name, shown_s in self._shown_s.items() if shown_s > now_s}
        if not hidden:
            return answer
        tree = ElementTree.fromstring(answer.body)
        space = tree.tag[: tree.tag.index("}") + 1]
        for group in tree.iter(f"{space}instancesSet"):
            for item in list(group):
                if item.findtext(f"{space}instanceId") in hidden:
                    group.remove(item)
        ElementTree.register_namespace("", space[1:-1])
        return answer._replace(body=ElementTree.tostring(tree))

    # Auto Scaling

    def _group(self, asked: Asked, name: str) -> dict[str, Any]:
        form = {"Action": "DescribeAutoScalingGroups", "Version": "2011-01-01", "AutoScalingGroupNames.member.1": name}
        tree = ElementTree.fromstring(self._forward(asked, form).body)
        member = tree.find(f".//{{{_ASG}}}AutoScalingGroups/{{{_ASG}}}member")
        if member is None:
            raise Refusal("ValidationError", f"AutoScalingGroup name not found - {name}")
        found: dict[str, Any] = {
            key: int(member.findtext(f"{{{_ASG}}}{key}") or 0) for key in ("MinSize", "MaxSize", "DesiredCapacity")
        }
        found["type"] = next((e.text for e in member.iter(f"{{{_ASG}}}InstanceType")), "")
        found["ids"] = [e.text for e in member.iter(f"{{{_ASG}}}InstanceId")]
        return found

    def _set_desired(self, asked: Asked) -> Answer:
        name, wanted = asked.form["AutoScalingGroupName"], int(asked.form["DesiredCapacity"])
        group = self._group(asked, name)
        if not group["MinSize"] <= wanted <= group["MaxSize"]:
            raise Refusal("ValidationError", f"New SetDesiredCapacity value {wanted} is outside the group's limits.")
        now_s = time.monotonic()
        scaled_s = self._scaled_s.get(name, -1e9)
        if asked.form.get("HonorCooldown") == "true" and now_s - scaled_s < self.cooldown_s:
            raise Refusal("ScalingActivityInProgress", f"Scaling activity is in progress, cooldown of {name}")
        here = int(group["DesiredCapacity"])  # moto's own, which is always reached
        more = wanted - here
        left = min(more, self.capacity.get(group["type"] or name, more)) if more > 0 else more
        answer = self._forward(asked, {**asked.form, "DesiredCapacity": str(here + left)}) if left else None
        if more > 0 and (group["type"] or name) in self.capacity:
            self.capacity[group["type"] or name] -= left
        self._wanted[name] = wanted
        self._scaled_s[name] = now_s
        told = self._activities.setdefault(name, [])
        status, message = ("Failed", "We currently do not have sufficient capacity in the Availability Zone you "
                           "requested. Insufficient capacity.") if left < more else ("Successful", "")  # fmt: skip
        told.insert(0, (str(uuid.uuid4()), status, message))
        return answer or Answer(
            200, f'<SetDesiredCapacityResponse xmlns="{_ASG}"><ResponseMetadata/></SetDesiredCapacityResponse>'.encode()
        )

    def _terminate_in_group(self, asked: Asked) -> Answer:
        instance = asked.form["InstanceId"]
        if instance in self._ended:
            raise Refusal("ValidationError", f"Instance Id not found - No managed instance found for {instance}")
        shrinks = asked.form.get("ShouldDecrementDesiredCapacity") == "true"
        holder = next((name for name in self._wanted if instance in self._group(asked, name)["ids"]), "")
        if shrinks and holder and self._wanted[holder] <= self._group(asked, holder)["MinSize"]:
            raise Refusal("ValidationError", "Currently, desiredSize equals minSize. Terminating would violate it.")
        answer = self._forward(asked)
        self._ended.add(instance)
        if shrinks and holder:
            self._wanted[holder] -= 1
        return answer

    def _describe_groups(self, asked: Asked) -> Answer:
        answer = self._forward(asked)
        tree = ElementTree.fromstring(answer.body)
        for member in tree.iter(f"{{{_ASG}}}member"):
            name, shown = member.findtext(f"{{{_ASG}}}AutoScalingGroupName"), member.find(f"{{{_ASG}}}DesiredCapacity")
            if name in self._wanted and shown is not None:
                shown.text = str(self._wanted[name])
        ElementTree.register_namespace("", _ASG)
        return answer._replace(body=ElementTree.tostring(tree))

    def _describe_activities(self, asked: Asked) -> Answer:
        name = asked.form["AutoScalingGroupName"]
        self._group(asked, name)
        members = "".join(
            f"<member><ActivityId>{id_}</ActivityId><AutoScalingGroupName>{name}</AutoScalingGroupName><Cause>c</Cause>"
            f"<StartTime>2026-11-24T00:00:00Z</StartTime><StatusCode>{status}</StatusCode><StatusMessage>{message}"
            "</StatusMessage></member>"
            for id_, status, message in self._activities.get(name, ())
        )
        return Answer(
            200,
            f'<DescribeScalingActivitiesResponse xmlns="{_ASG}"><DescribeScalingActivitiesResult><Activities>{members}'
            "</Activities></DescribeScalingActivitiesResult></DescribeScalingActivitiesResponse>".encode(),
        )

    # EKS

    def _update_node_group(self, asked: Asked) -> Answer:
        body = json.loads(asked.body)
        token = body.pop("clientRequestToken", "")
        said = f"{asked.path} {json.dumps(body, sort_keys=True)}"
        if token in self._tokens:
            before, answer = self._tokens[token]
            if before != said:
                raise Refusal("InvalidRequestException", "the token was used with other parameters")
            return answer
        group = self._node_group(asked)
        wanted, limits = body["scalingConfig"]["desiredSize"], group["scalingConfig"]
        if not limits["minSize"] <= wanted <= limits["maxSize"]:
            raise Refusal("InvalidParameterException", f"desired capacity {wanted} can't be greater than the maximum")
        answer = self._forward(asked)
        update = json.loads(answer.body)["update"]
        update |= {"status": "InProgress", "id": str(uuid.uuid4())}
        self._updates[update["id"]] = self.update_looks
        answer = answer._replace(body=json.dumps({"update": update}).encode())
        self._tokens[token] = (said, answer)
        return answer

    def _describe_update(self, asked: Asked) -> Answer:
        name = asked.path.partition("?")[0].rsplit("/", 1)[1]
        if name not in self._updates:
            raise Refusal("ResourceNotFoundException", f"No update found for ID: {name}", 404)
        left = self._updates[name]
        self._updates[name] = max(0, left - 1)
        update: dict[str, Any] = {
            "id": name,
            "status": "InProgress" if left else "Failed" if self.update_errors else "Successful",
            "type": "ConfigUpdate",
            "errors": [] if left else self.update_errors,
        }
        return Answer(200, json.dumps({"update": update}).encode(), "application/json")

    def _node_group(self, asked: Asked) -> dict[str, Any]:
        path = asked.path.removesuffix("/update-config")
        answer = self._forward(asked._replace(method="GET", path=path, body=b""))
        if answer.status >= 400:
            raise Refusal("ResourceNotFoundException", "No node group found", 404)
        group: dict[str, Any] = json.loads(answer.body)["nodegroup"]
        return group

    def _describe_node_group(self, asked: Asked) -> Answer:
        group = self._node_group(asked)
        group["tags"] = {**group.get("tags", {}), **self._tags.get(group["nodegroupArn"], {})}
        group["health"] = {"issues": self.issues}
        return Answer(200, json.dumps({"nodegroup": group}).encode(), "application/json")

    def _tag(self, asked: Asked) -> Answer:
        arn = unquote(asked.path.split("/tags/", 1)[1])
        self._tags.setdefault(arn, {}).update(json.loads(asked.body)["tags"])
        return Answer(200, b"{}", "application/json")


def _asked(request: BaseHTTPRequestHandler, body: bytes) -> Asked:
    headers = {k: v for k, v in request.headers.items() if k.lower() not in ("content-length", "connection")}
    scope = headers.get("Authorization", "").partition("Credential=")[2].partition(",")[0].split("/")
    service = scope[3] if len(scope) > 3 else ""
    form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)) if service != "eks" else {}
    name = form.get("Action", "")
    if service == "eks":
        parts = urlsplit(request.path).path.strip("/").split("/")
        kind = "tags" if parts[0] == "tags" else "updates" if "updates" in parts else parts[-1]
        name = _EKS.get((request.command or "", kind)) or _EKS.get((request.command or "", "node-groups"), "")
    return Asked(f"{service}:{name}", request.command or "", request.path, form, body, headers)


def _error(asked: Asked, no: Refusal) -> Answer:
    if asked.action.startswith("eks:"):
        return Answer(no.status, json.dumps({"message": str(no)}).encode(), "application/json", no.code)
    if asked.action.startswith("ec2:"):
        text = f"<Response><Errors><Error><Code>{no.code}</Code><Message>{no}</Message></Error></Errors></Response>"
    else:
        text = (
            f'<ErrorResponse xmlns="{_ASG}"><Error><Type>Sender</Type><Code>{no.code}</Code><Message>{no}</Message>'
            "</Error></ErrorResponse>"
        )
    return Answer(no.status, text.encode())
