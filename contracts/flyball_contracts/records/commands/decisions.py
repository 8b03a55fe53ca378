"""The four commands. A decision is a proposal with an explanation: the actuator alone acts."""

from typing import Annotated

import msgspec

from flyball_contracts.records.base import Evidence, Part, Record, TimeNs
from flyball_contracts.records.commands.portion import Portion
from flyball_contracts.records.commands.resources import Resources


class Effect(Part, frozen=True, kw_only=True):
    """Expected change by the decision, compared later with the observed one; ``None``: not estimated.

    ``slo`` is the expected change of the share of requests within their objective.
    """

    cost_usd_per_hour: float | None = None
    carbon_g_per_hour: float | None = None
    power_w: float | None = None
    gpus: float | None = None
    slo: float | None = None


class Decision(Record, tag_field="type", frozen=True, kw_only=True):
    """Common fields of all commands.

    ``id`` is the idempotency key: the same decision, replayed, has the same id. ``target`` is what a driver acts
    on. ``expires_ns`` is the time after which it must not be carried out. A ``Scale`` of a pool of machines has
    ``pool:NAME`` as its ``workload``, and its replicas are machines; a ``Check`` has ``node:NAME``.
    """

    id: str
    target: str
    cell: str
    workload: str
    time_ns: TimeNs
    expires_ns: TimeNs
    reason: str
    confidence: float
    policy: str
    evidence: tuple[Evidence, ...] = ()
    expected: Effect = Effect()


class Scale(Decision, tag="Scale", frozen=True, kw_only=True):
    """Set a workload's number of replicas; ``replicas_before`` is what the decision assumed.

    With ``resources`` it is vertical: the number stays, and each replica requests these instead of
    ``resources_before``. If that needs a restart, replicas restart one by one. One decision changes at most
    ``batch_size`` of the replicas that do not request them yet, and never more than the actuator's limits allow; later
    decisions change the rest. With ``mix`` the replicas are to run on these offers, in all as many as ``replicas`` less
    those on machines that no offer describes, which stay. Replicas stop once their replacements are ready. ``victims``
    name the machines of a pool that should go first; empty for the platform's choice.
    """

    replicas: int
    replicas_before: int
    power_limit_w: float | None = None
    resources: Resources | None = None
    resources_before: Resources | None = None
    batch_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    mix: tuple[Portion, ...] = ()
    victims: tuple[str, ...] = ()


class Migrate(Decision, tag="Migrate", frozen=True, kw_only=True):
    """Move one replica away from a device or node; an empty ``to_node`` leaves the choice to the scheduler."""

    replica: str
    from_node: str
    from_device: str
    to_node: str = ""


class Preempt(Decision, tag="Preempt", frozen=True, kw_only=True):
    """Stop or suspend replicas so that something more urgent, cheaper or greener can run.

    ``replicas`` run on afterwards; ``victims`` names those to stop, empty for the platform's choice. ``until_ns`` is
    when the work may come back, ``None`` for when there is room.
    """

    replicas: int
    replicas_before: int
    until_ns: TimeNs | None = None
    checkpoint: bool = True
    beneficiary: str = ""
    victims: tuple[str, ...] = ()


class Check(Decision, tag="Check", frozen=True, kw_only=True):
    """Close a node if it is open, run a check on it, and open it if the check passes; if not, it stays closed.

    ``devices`` are the GPUs to check, on which nothing may run: the faulty ones and other free GPUs of the node; empty
    for all, where none is known. ``attempt`` counts the checks of the node since it was cordoned, from 1.
    """

    node: str
    devices: tuple[str, ...] = ()
    attempt: int = 1


AnyDecision = Scale | Migrate | Preempt | Check
