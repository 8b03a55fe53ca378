"""Nodes of a partition that Slurm powers off and on (``SuspendProgram``, ``ResumeProgram``), as a pool of machines.

A decision marks nodes in their comments, then powers them up, or powers down idle ones. A second power-up of a node
that is starting would wait in vain for another start, so it is sent only while Slurm shows that the first one was not
sent. Slurm itself powers down nodes that are idle for ``SuspendTime``.
"""

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from flyball_actuators.platforms.base import (
    Done,
    Failed,
    Handle,
    PlatformError,
    Progress,
    Rejected,
    Running,
    Superseded,
)
from flyball_actuators.platforms.pools.backing import PoolState
from flyball_actuators.platforms.pools.operation import Operation, operation_of
from flyball_actuators.platforms.pools.platform import PoolPlatform
from flyball_actuators.platforms.slurm.commands import Commands
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import Scale, SubjectState

_MARK = re.compile(r"flyball:([^\s:]+):(on|off)\.(\d+)")
_GOING = frozenset({"POWERING_DOWN", "POWER_DOWN"})
_COMING = frozenset({"POWERING_UP", "POWER_UP"})
_BROKEN = frozenset({"DOWN", "FAIL", "FAILING", "DRAIN"})


class Node(NamedTuple):
    """One node; ``flags`` are its state and all state flags, in capitals."""

    name: str
    flags: frozenset[str]
    comment: str
    reason: str
    cpus_in_use: int

    @property
    def off(self) -> bool:
        """Whether it is powered down, or about to be."""
        if not self.flags.isdisjoint(_GOING):
            return True
        return "POWERED_DOWN" in self.flags and self.flags.isdisjoint(_COMING)

    @property
    def resumable(self) -> bool:
        """Whether it is powered down and can be powered up."""
        return self.off and not self.broken and self.flags.isdisjoint(_GOING)

    @property
    def broken(self) -> bool:
        """Whether it needs an operator first."""
        return not self.flags.isdisjoint(_BROKEN)

    @property
    def on(self) -> bool:
        """Whether it is powered up, or about to be, and so costs money, even if jobs cannot start on it."""
        return not self.off

    @property
    def ready(self) -> bool:
        """Whether jobs can start on it."""
        return self.on and not self.broken and self.flags.isdisjoint({*_COMING, "NOT_RESPONDING"})

    @property
    def idle(self) -> bool:
        """Whether nothing runs on it."""
        return self.ready and "IDLE" in self.flags and not self.cpus_in_use


def power_pools(entry: PlatformConfig, where: str, clock: Callable[[], int] = time.time_ns) -> PoolPlatform:
    """The partition pools of a Slurm entry; raises :class:`ConfigError` for another kind of pool."""
    for i, pool in enumerate(entry.pools):
        if pool.kind != "partition":
            raise ConfigError(f"{where}.pools[{i}].kind: driver slurm has no {pool.kind}; set kind: partition")
    commands = Commands(entry.conf, entry.timeout_s)
    backings = {pool.name: PowerSave(commands, pool.name, pool.resource, clock) for pool in entry.pools}
    return PoolPlatform(entry, backings, clock)


class PowerSave:
    """The nodes of one partition as machines of pool ``name``."""

    def __init__(self, commands: Commands, name: str, partition: str, clock: Callable[[], int]) -> None:
        self._commands, self._name, self._partition, self._clock = commands, name, partition, clock
        self._query: tuple[str, ...] = ("sinfo", "--json")

    def observe(self) -> PoolState | Rejected:
        """Nodes that are on; the maximum excludes nodes that need an operator."""
        nodes = self._nodes()
        return nodes if isinstance(nodes, Rejected) else _pool_state(nodes)

    def grow(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Power nodes up, first those that an interrupted decision has marked."""
        return self._change(decision, current, "on", dry_run=dry_run)

    def shrink(self, decision: Scale, current: PoolState, *, dry_run: bool) -> Handle | Rejected:
        """Power idle nodes down."""
        return self._change(decision, current, "off", dry_run=dry_run)

    def poll(self, operation: Operation, now_ns: int) -> Progress:
        """Done once the nodes are in the requested state; repeats what a crash left undone."""
        found = self._nodes()
        if isinstance(found, Rejected):
            return Failed(f"unknown outcome: {found.detail}")
        state = _pool_state(found).state
        nodes = [node for node in found if node.name in operation.machine_ids]
        theirs = [node.name for node in nodes if _decision(node) != operation.decision]
        if theirs:
            return Superseded(f"node {theirs[0]} was commanded by another user since", state)
        grows = operation.verb == "grow"
        broken = [node for node in nodes if node.broken]
        if broken:
            first, what = broken[0], "come" if grows else "go"
            return Failed(
                f"node {first.name} did not {what}: {first.reason or 'Slurm gives no reason'}; scontrol update "
                f"NodeName={first.name} State=RESUME once it is mended",
                state,
            )
        left = [node for node in nodes if not (node.ready if grows else "POWERED_DOWN" in node.flags)]
        if not left:
            return Done(
                state, now_ns, f"{len(nodes)} nodes of partition {self._partition!r} are {_on_or_off(operation)}"
            )
        late = [node for node in left if (node.resumable if grows else not node.off)]
        if late:
            problem = self._set_power(late, "on" if grows else "off")
            if problem is not None:
                return Failed(problem.detail, state)
        text = f"{len(nodes) - len(left)} of {len(nodes)} nodes are {_on_or_off(operation)}"
        if now_ns >= operation.until_ns:
            return Failed(f"in time, only {text}", state)
        return Running(text)

    def find(self, decision: Scale, observed: SubjectState | None) -> Handle | Rejected | None:
        """Nodes with the decision's mark; with fewer marks than stated, nothing was started."""
        nodes = self._nodes()
        if isinstance(nodes, Rejected):
            return nodes
        ours = [node for node in nodes if _decision(node) == decision.id]
        marks = [mark for node in ours if (mark := _MARK.search(node.comment)) is not None]
        if not marks or len(ours) < int(marks[0][3]):
            return None
        change = len(ours) if marks[0][2] == "on" else -len(ours)
        return self._handle(decision, decision.replicas - change, ours, "found on the nodes")

    def _change(
        self, decision: Scale, current: PoolState, to: Literal["on", "off"], *, dry_run: bool
    ) -> Handle | Rejected:
        found = self._nodes()
        if isinstance(found, Rejected):
            return found
        count = abs(decision.replicas - current.machines)
        can = [node for node in found if (node.resumable if to == "on" else node.idle)]
        can.sort(key=lambda node: (_decision(node) != decision.id, node.name))
        if len(can) < count:
            what = "can be turned on" if to == "on" else "are idle; move their jobs first"
            return Rejected(
                "unsupported", f"{count} nodes of partition {self._partition!r} are requested, and {len(can)} {what}"
            )
        nodes = can[:count]
        names = ", ".join(node.name for node in nodes)
        if dry_run:
            return self._handle(decision, current.machines, nodes, f"would be turned {to}: {names}", dry_run=True)
        for node in nodes:
            kept = [word for word in node.comment.split() if not _MARK.fullmatch(word)]
            comment = " ".join([*kept, f"flyball:{quote(decision.id, safe='')}:{to}.{count}"])
            problem = self._commands.apply("scontrol", "update", f"NodeName={node.name}", f"Comment={comment}")
            if problem is not None:
                return problem
        problem = self._set_power(nodes, to)
        if problem is not None:
            for node in nodes:  # nothing was started, so no mark may be found
                self._commands.apply("scontrol", "update", f"NodeName={node.name}", f"Comment={node.comment}")
            return problem
        return self._handle(decision, current.machines, nodes, f"nodes {names} are turned {to}")

    def _handle(self, decision: Scale, before: int, nodes: list[Node], answer: str, *, dry_run: bool = False) -> Handle:
        ids = ",".join(node.name for node in nodes)
        return operation_of(decision, self._name, before, self._clock(), ids=ids).handle(answer, dry_run=dry_run)

    def _set_power(self, nodes: list[Node], to: Literal["on", "off"]) -> Rejected | None:
        state = "POWER_UP" if to == "on" else "POWER_DOWN"
        return self._commands.apply(
            "scontrol", "update", f"NodeName={','.join(node.name for node in nodes)}", f"State={state}"
        )

    def _nodes(self) -> list[Node] | Rejected:
        text = self._commands.query(*self._query)
        try:
            answer: dict[str, Any] = msgspec.json.decode(text)
            if "sinfo" in answer and "nodes" not in answer:  # from 23.02 on it reports groups of nodes
                self._query = ("scontrol", "show", "nodes", "--json")
                answer = msgspec.json.decode(self._commands.query(*self._query))
            entries: list[Mapping[str, Any]] = answer["nodes"]
            nodes = [_node(entry) for entry in entries if self._partition in entry["partitions"]]
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise PlatformError(
                f"{' '.join(self._query)}: not an answer that is known of Slurm: {error!r}; leave partition pools out"
            ) from error
        if nodes:
            return sorted(nodes, key=lambda node: node.name)
        return Rejected(
            "unknown_target",
            f"partition {self._partition!r} has no nodes; correct resource of pool {self._name!r}, and set "
            "PrivateData=cloud in slurm.conf, or no user is shown nodes that are off",
        )


def _pool_state(nodes: list[Node]) -> PoolState:
    text = "\n".join(f"{node.name} {node.off} {node.broken} {node.comment}" for node in nodes)
    return PoolState(
        machines=sum(node.on for node in nodes),
        ready=sum(node.ready for node in nodes),
        version=hashlib.sha256(text.encode()).hexdigest()[:16],
        most=sum(node.on or not node.broken for node in nodes),
    )


def _node(entry: Mapping[str, Any]) -> Node:
    states: Any = entry["state"]
    flags = [*([states] if isinstance(states, str) else states), *(entry.get("state_flags") or ())]
    return Node(
        name=str(entry["name"]),
        flags=frozenset(str(flag).upper() for flag in flags),
        comment=str(entry.get("comment") or ""),
        reason=str(entry.get("reason") or ""),
        cpus_in_use=int(entry.get("alloc_cpus") or 0),
    )


def _decision(node: Node) -> str:
    found = _MARK.search(node.comment)
    return unquote(found[1]) if found else ""


def _on_or_off(operation: Operation) -> str:
    return "on" if operation.verb == "grow" else "off"
