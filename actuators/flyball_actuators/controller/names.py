"""Writes, for the agents of a cluster, which namespaces the names of workloads belong to."""

import logging
import time
from collections.abc import Mapping
from typing import Any

from flyball_actuators.platforms.base import PlatformError
from flyball_actuators.platforms.kubernetes.api import APPLY, Api
from flyball_actuators.platforms.kubernetes.names import read_names
from flyball_contracts.declared.names import GROUP, NAMES, NAMES_KIND, NAMES_PATH, VERSION

_LOG = logging.getLogger(__name__)
_REPEAT_S = 30.0  # restores entries that someone else has removed


class NamesWriter:
    """Applies the object ``WorkloadNames``.

    Controllers of several cells may write it, each as a field manager of its own, which owns what it has added. Names
    with a ``/`` are left out: they contain their namespace. A controller that reads the whole cluster marks the names
    as ``complete``; any other controller leaves that field out, so that both may write.
    """

    def __init__(self, api: Api, manager: str, *, complete: bool) -> None:
        self._api, self._manager, self._complete = api, manager, complete
        self._applied: Mapping[str, str] | None = None
        self._applied_s = 0.0
        self._problem = ""

    def read(self) -> Mapping[str, tuple[str, ...]] | None:
        """The namespaces that the object now has for each name; ``None`` if reading failed and has to be retried."""
        try:
            return read_names(self._api)
        except PlatformError as error:
            _LOG.warning("the names of workloads: %s; they are read again", error)
            return None

    def write(self, homes: Mapping[str, str]) -> bool:
        """Apply the namespaces of names, unless that was just done; return ``False`` if it has to be retried."""
        bare = {name: space for name, space in sorted(homes.items()) if "/" not in name}
        now_s = time.monotonic()
        if bare == self._applied and now_s - self._applied_s < _REPEAT_S:
            return True
        # An empty map in place of the last name would become null there, which the schema refuses.
        spec: dict[str, Any] = {"names": {name: [space] for name, space in bare.items()}} if bare else {}
        spec |= {"complete": True} if self._complete else {}
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": NAMES_KIND,
            "metadata": {"name": NAMES},
            **({"spec": spec} if spec else {}),
        }
        try:
            answer = self._api.call("PATCH", NAMES_PATH, body, (("fieldManager", self._manager),), APPLY)
        except PlatformError as error:
            _LOG.warning("the names of workloads: %s; they are written again", error)
            return False
        self._applied, self._applied_s = bare, now_s
        problem = "" if answer.ok else answer.message or f"HTTP {answer.status}"
        if problem and problem != self._problem:
            remedy = "infra/kubernetes/crds.yaml and controller.yaml define it and grant it"
            _LOG.warning(
                "agents are not told which namespaces the names of workloads belong to: %s; %s", problem, remedy
            )
        self._problem = problem
        return True
