"""State of this node in Slurm, by ``scontrol``; a query that hangs delays each look by :data:`PATIENCE_S` at most."""

import subprocess
import time
from contextlib import suppress

from flyball_collectors.parameters import SlurmParameters
from flyball_collectors.workload.discovery.base import NodeState
from flyball_contracts.nodes.slurm import node_of

PATIENCE_S = 0.5
"""Longest wait for an answer at each look; most answers take some hundredths of a second."""


class NodeQuery:
    """Queries the state of a node; ``problem`` says why it is not known, empty if it is known or there is no command.

    ``state`` is the last known one, ``None`` before there is any.
    """

    def __init__(self, settings: SlurmParameters, node: str) -> None:
        self.state: NodeState | None = None
        self.problem = ""
        self._settings, self._node = settings, node
        self._process: subprocess.Popen[str] | None = None
        self._began_s = float("-inf")

    def look(self) -> bool:
        """Begin a query when one is due, and take the answer of a running one; return whether a query has failed."""
        is_due = self._process is None and time.monotonic() - self._began_s >= self._settings.node_period_s
        if is_due and self._begin():
            return True
        if self._process is None:
            return False
        late = time.monotonic() - self._began_s >= self._settings.node_timeout_s
        if late:
            self._process.kill()
        try:
            output, error_text = self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            return False
        self._process = None
        why = f"no answer in {self._settings.node_timeout_s:g} s" if late else error_text or output
        return not self._take(output, why)

    def close(self) -> None:
        """End the running query."""
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):  # the kernel holds it
                self._process.communicate(timeout=PATIENCE_S)

    def _begin(self) -> bool:
        """Begin a query; return whether that has failed."""
        import shutil

        self._began_s = time.monotonic()
        program = shutil.which("scontrol")
        if program is None:
            self.problem = ""
            return False
        command = [program, "-o", "show", "node", self._node]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace",
            )  # fmt: skip
        except OSError as error:
            return not self._take("", f"{type(error).__name__}: {error}")
        return False

    def _take(self, output: str, error_text: str) -> bool:
        """Take an answer; return whether it shows the node."""
        shown = node_of(output)
        if shown is None:
            remedy = "see that slurmctld answers, and that agent.node is the node's name in Slurm"
            self.problem = f"scontrol does not show node {self._node!r} ({error_text.strip()[:200]}); {remedy}"
            return False
        self.state, self.problem = NodeState(shown.takes_jobs, shown.cordon), ""
        return True
