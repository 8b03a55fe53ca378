"""The name of an operation on a pool: everything that another process needs to continue it."""

import hashlib
from typing import Literal
from uuid import UUID

from flyball_actuators.platforms import operations
from flyball_actuators.platforms.base import Handle
from flyball_contracts.records import Scale, SubjectState

GIVE_UP_S = 900.0


class Operation(operations.NamedOperation, frozen=True, kw_only=True, omit_defaults=True):
    """The submission of one decision: ``machines`` are requested where there were ``before``.

    ``ids`` are the machines to return, comma-separated. ``call`` is the cloud's id of the request, ``seen`` the newest
    event before it. ``short`` is why fewer machines came than were requested. The operation is given up after
    ``until_ns``.
    """

    verb: Literal["grow", "shrink"]
    decision: str
    pool: str
    before: int
    machines: int
    until_ns: int
    ids: str = ""
    call: str = ""
    seen: str = ""
    short: str = ""

    @property
    def machine_ids(self) -> list[str]:
        """Ids of the machines to return."""
        return [one for one in self.ids.split(",") if one]

    def handle(self, answer: str, *, dry_run: bool = False) -> Handle:
        """As a handle of the platform interface."""
        expected = SubjectState(replicas=self.machines, ready=self.machines)
        return Handle(operation="" if dry_run else self.encode(), expected=expected, answer=answer)


def operation_of(decision: Scale, pool: str, before: int, now_ns: int, **more: str) -> Operation:
    """The operation of a decision on a pool that had ``before`` machines."""
    return Operation(
        verb="grow" if decision.replicas >= before else "shrink",
        decision=decision.id,
        pool=pool,
        before=before,
        machines=decision.replicas,
        until_ns=now_ns + round(GIVE_UP_S * 1e9),
        **more,
    )


def decode(text: str) -> Operation:
    """Parse the operation of an outcome; :class:`PlatformError` for another platform's."""
    return operations.decode(Operation, text, "a pool")


def token(decision: Scale, what: str = "") -> str:
    """Request token of a decision: the same for the same decision on the same pool, from any process."""
    message = "\0".join((decision.id, decision.target, str(decision.replicas), what))
    return hashlib.sha256(message.encode()).hexdigest()


def token_uuid(decision: Scale, what: str = "") -> str:
    """The token as a UUID."""
    return str(UUID(hex=token(decision, what)[:32], version=4))


def mark(decision: str) -> str:
    """A decision as a label value: its id if a cloud accepts that, else a hash."""
    plain = len(decision) <= 63 and decision.isascii() and decision.replace("-", "").replace("_", "").isalnum()
    return decision if plain and decision == decision.lower() else hashlib.sha256(decision.encode()).hexdigest()[:40]
