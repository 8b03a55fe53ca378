"""Several actuators as processes, and the program of each, which ends at SIGTERM; platforms know it by its token.

Its arguments: bootstrap, group, the ledger file, the kill switch, and CELL=URL of each platform. The token is in TOKEN.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.actuators.loop import DEADLINE_S, config_for, outcomes, publish, wait_for
from tests.actuators.platform_server import PlatformServer
from tests.actuators.samples import NOW, scale, spec
from tests.cli.shell import Forked

from flyball_actuators.parameters import RateParameters
from flyball_actuators.service import run_actuator
from flyball_contracts.config import PlatformConfig

MODULE = "tests.actuators.handing_over"
TOKEN = "TOKEN"


class Group:
    """Actuators of one group as processes, and a platform for each cell."""

    def __init__(
        self, address: str, group: str, folder: Path, servers: dict[str, PlatformServer], work: Sequence[str]
    ) -> None:
        self.address, self.group, self.folder, self.servers = address, group, folder, servers
        self.processes: dict[str, Forked] = {}
        self.sent: list[str] = []
        self.probes = 0
        for cell, server in servers.items():
            names = [f"{name}-{cell}" for name in work]
            publish(self.address, *(spec(name, cell=cell) for name in names))
            for name in names:
                server.has(name, 4)

    def start(self, name: str) -> None:
        files = [str(self.folder / f"{what}-{name}") for what in ("ledger", "kill")]
        sites = [f"{cell}={server.url}" for cell, server in self.servers.items()]
        log = self.folder / f"{name}.log"
        log.touch()
        self.processes[name] = Forked(
            MODULE, self.address, self.group, *files, *sites,
            output=str(log), errors=str(log), env={**os.environ, TOKEN: name}, imports=[MODULE],
        )  # fmt: skip

    def decide(self, work: str, *cells: str, number: int = 0) -> list[str]:
        """Scale a workload of each cell; the ids of the decisions."""
        decisions = [
            scale(f"{work}{number}-{cell}", workload=f"{work}-{cell}", before=4, after=5, cell=cell) for cell in cells
        ]
        publish(self.address, *decisions)
        self.sent += [decision.id for decision in decisions if decision.id not in self.sent]
        return [decision.id for decision in decisions]

    def spoke(self, decision: str, *, final: bool = False) -> set[str]:
        """Which processes said something of a decision, or its last word."""
        pids = {str(process.pid): name for name, process in self.processes.items()}
        found = [o for o in outcomes(self.address) if o.decision == decision and (o.final or not final)]
        return {pids[o.actuator.split("/")[1]] for o in found}

    def ended_by(self, decision: str) -> str:
        """Which process said the last word of a decision, empty before it."""
        return next(iter(self.spoke(decision, final=True)), "")

    def owners(self, wanted: set[str]) -> dict[str, str]:
        """Which process has which cell, once these have one each."""
        owners: dict[str, str] = {}

        def found() -> bool:
            self.probes += 1
            probes = self.decide("probe", *self.servers, number=self.probes)
            wait_for(lambda: all(map(self.ended_by, probes)), "the last words of probes")
            owners.update(zip(self.servers, map(self.ended_by, probes), strict=True))
            return set(owners.values()) == wanted

        wait_for(found, f"partitions of {wanted}")
        return owners

    def told(self, cell: str) -> list[tuple[str, str]]:
        """What the platform of a cell was told, and by whom."""
        server = self.servers[cell]
        return [*zip(server.log, server.callers, strict=True)]

    def settled(self) -> bool:
        return {o.decision for o in outcomes(self.address) if o.final} == set(self.sent)

    def close(self) -> str:
        """End all, and give what they logged."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(DEADLINE_S)
        return "".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


def main(bootstrap: str, group: str, ledger: str, kill_switch: str, *sites: str) -> None:
    logging.basicConfig(level="INFO", format="%(asctime)s.%(msecs)03d %(name)s %(message)s")
    stop = threading.Event()

    def end(_signum: int, _frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    platforms = tuple(
        PlatformConfig(driver="webhook", url=url, cells=(cell,), token_env=TOKEN, poll_s=0.05, timeout_s=60.0)
        for cell, url in (site.split("=", 1) for site in sites)
    )
    config = config_for(
        bootstrap, group, mode="live", ledger=ledger, allow=("*",), kill_switch=kill_switch, platforms=platforms,
        per_target=RateParameters(1000), per_cell=RateParameters(1000),
    )  # fmt: skip
    run_actuator(config, stop=stop, clock=lambda: NOW)


if __name__ == "__main__":
    main(*sys.argv[1:])
