"""The simulated platform, asked from outside: what happened there, and how it stands."""

import urllib.error
import urllib.request
from typing import TypeVar

import msgspec

from flyball_contracts.errors import TransportError
from flyball_contracts.records import Account, SubjectState
from flyball_contracts.simulated import CellState, NodeState, Operation

T = TypeVar("T")
TIMEOUT_S = 5.0


class EndState(msgspec.Struct, frozen=True):
    """How the fleet stands: replicas of each workload, how many of them are on nodes, and which nodes have a cordon.

    A run that takes long has its node checked before its end, which names more GPUs of it.

    Which nodes those are depends on what was free when each came, so it is not the same in two runs.
    """

    replicas: dict[str, int | None]
    suspended: dict[str, bool | None]
    placed: dict[str, int]
    cordoned: dict[str, bool]


class PlatformReader:
    """Reads the platform at ``url``; :class:`TransportError` when it does not answer."""

    def __init__(self, url: str) -> None:
        self.url = url

    def cell(self) -> CellState:
        """The cell."""
        return self._get("/v1/cell", CellState)

    def operations(self) -> list[Operation]:
        """All operations, oldest first."""
        return self._get("/v1/operations", list[Operation])

    def accounts(self) -> list[Account]:
        """What each scenario has cost and achieved."""
        return self._get("/v1/accounts", list[Account])

    def end_state(self, nodes: list[str]) -> EndState:
        """How the fleet stands."""
        cell = self.cell()
        states = {name: self._get(f"/v1/workloads/{name}", SubjectState) for name in cell.workloads}
        found = {name: self._get(f"/v1/nodes/{name}", NodeState) for name in nodes}
        return EndState(
            {name: state.replicas for name, state in states.items()},
            {name: state.suspended for name, state in states.items()},
            {name: sum(node != "" for node in state.nodes.values()) for name, state in states.items()},
            {name: True for name, node in found.items() if node.cordoned},
        )

    def _get(self, path: str, kind: type[T]) -> T:
        try:
            with urllib.request.urlopen(self.url + path, timeout=TIMEOUT_S) as answer:
                return msgspec.json.decode(answer.read(), type=kind)
        except (OSError, urllib.error.URLError, msgspec.DecodeError) as error:
            raise TransportError(f"the simulated platform at {self.url}{path} gives no answer: {error}") from error
