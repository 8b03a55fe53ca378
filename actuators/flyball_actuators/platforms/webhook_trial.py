"""Tests whether a server conforms to ``flyball_contracts.webhook``, without changing anything."""

import time
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from flyball_actuators.platforms.base import Failed, Handle, PlatformError, Rejected
from flyball_actuators.platforms.webhook import WebhookPlatform
from flyball_contracts.records import Scale, SubjectState

_TTL_NS = 60 * 1_000_000_000


class Rule(NamedTuple):
    """One rule of the interface, whether the server conforms to it, and what was found."""

    rule: str
    kept: bool
    found: str


class _Broken(Exception):
    """The server violates a rule; the message says how."""


def trial(platform: WebhookPlatform, workload: str, anonymous: WebhookPlatform | None = None) -> Iterator[Rule]:
    """Test the rules in order; stop after a failed rule that all later ones depend on.

    ``anonymous`` is the same server, accessed without the token.
    """
    checks = _Trial(platform, workload, anonymous)
    for rule, check, needed in (
        ("it reports its cell", checks.cell, True),
        ("it shows the workload, its replicas and a version", checks.state, True),
        ("it knows what it does not run: 404 with a Rejection", checks.unknown_workload, False),
        ("it knows what it never did: 404 with a Rejection", checks.unknown_operation, False),
        ("it plans a Scale, and reports the expected state", checks.plan, False),
        ("a plan changes nothing, and is no operation", checks.unchanged, False),
        ("a Scale under another version is a conflict", checks.conflict, False),
        ("it refuses requests without the token", checks.needs_token, False),
    ):
        try:
            found, kept = check(), True
        except (_Broken, PlatformError) as error:
            found, kept = str(error), False
        yield Rule(rule, kept, found)
        if needed and not kept:
            return


class _Trial:
    def __init__(self, platform: WebhookPlatform, workload: str, anonymous: WebhookPlatform | None) -> None:
        self._platform, self._workload, self._anonymous = platform, workload, anonymous
        self._cell, self._seen = "", SubjectState()
        self._planned = ""

    def cell(self) -> str:
        self._cell = self._platform.cell()
        return self._cell

    def state(self) -> str:
        found = self._platform.observe(self._scale(self._workload))
        if isinstance(found, Rejected):
            raise _Broken(found.detail)
        if found.replicas is None or not found.version:
            lacks = "replicas" if found.replicas is None else "version"
            raise _Broken(f"{lacks} is missing: a decision is carried out only on the state on which it was made")
        self._seen = found
        ready = "" if found.ready is None else f", {found.ready} ready"
        return f"{found.replicas} replicas{ready}, version {found.version}"

    def unknown_workload(self) -> str:
        found = self._platform.observe(self._scale(f"no-such/{uuid.uuid4().hex[:8]}"))
        if not isinstance(found, Rejected):
            raise _Broken("it shows a state of a workload that does not exist")
        return found.detail

    def unknown_operation(self) -> str:
        if self._platform.find(self._scale(self._workload), None) is not None:
            raise _Broken("it knows an operation that was never submitted")
        return ""

    def plan(self) -> str:
        wanted = self._scale(self._workload)
        self._planned = wanted.id
        answer = self._platform.submit(wanted, self._seen, dry_run=True)
        if isinstance(answer, Rejected):
            if answer.code == "unsupported":
                return f"it does not scale: {answer.detail}"
            raise _Broken(f"{answer.code}: {answer.detail}")
        if answer.expected.replicas != wanted.replicas:
            raise _Broken(f"{wanted.replicas} replicas were requested, and it expects {answer.expected.replicas}")
        return f"{self._seen.replicas} to {answer.expected.replicas} replicas"

    def unchanged(self) -> str:
        found = self._platform.observe(self._scale(self._workload))
        if found != self._seen:
            raise _Broken(f"after the plan it shows {found}, before it {self._seen}")
        if not isinstance(self._platform.poll(Handle(operation=self._planned, expected=SubjectState())), Failed):
            raise _Broken("it remembers the plan as an operation, and would not carry the decision out any more")
        return ""

    def conflict(self) -> str:
        other = SubjectState(version=f"{self._seen.version}-not")
        answer = self._platform.submit(self._scale(self._workload), other, dry_run=True)
        if isinstance(answer, Rejected) and answer.code in ("conflict", "unsupported"):
            return answer.detail
        raise _Broken(f"it plans under any version: {answer}")

    def needs_token(self) -> str:
        if self._anonymous is None:
            return "it has no token: anyone who reaches it can command it"
        try:
            self._anonymous.cell()
        except PlatformError as error:
            return str(error)
        raise _Broken("it takes commands without the token")

    def _scale(self, workload: str) -> Scale:
        now_ns, before = time.time_ns(), self._seen.replicas or 0
        return Scale(
            id=f"trial-{uuid.uuid4().hex}",
            target=f"{self._cell}/{workload}",
            cell=self._cell,
            workload=workload,
            time_ns=now_ns,
            expires_ns=now_ns + _TTL_NS,
            reason="a trial of the contract: nothing is to happen",
            confidence=1.0,
            policy="trial",
            replicas=before + 1,
            replicas_before=before,
        )
