"""What serves on a cluster: a simulated fleet that runs as many replicas of a service as there are ready pods of it.

No model runs on simulated nodes. The fleet sends the telemetry that agents would send of pods that serve: requests
queue and are late where pods lack.
"""

import threading
import time
from types import TracebackType
from typing import Self

from tests.actuators.samples import scale
from tests.faults.platform import PlatformReader
from tests.kubernetes.cluster import Cluster

from flyball_actuators.platforms import Handle, PlatformError, Rejected
from flyball_actuators.platforms.simulated import SimulatedPlatform
from flyball_contracts.errors import TransportError
from flyball_contracts.records import WorkloadAccount

EVERY_S = 0.2


class Serving:
    """Lets the fleet at ``url`` follow the Deployment of ``workload`` for as long as the block lasts."""

    def __init__(self, cluster: Cluster, workload: str, url: str, cell: str) -> None:
        self._cluster, self._workload, self._cell = cluster, workload, cell
        self._fleet, self._reader = SimulatedPlatform(url, 5.0), PlatformReader(url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self.error: BaseException | None = None
        self.ready: list[int] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def account(self) -> WorkloadAccount:
        """What the service has achieved so far, and what waits."""
        (account,) = self._reader.accounts()
        (found,) = [part for part in account.workloads if part.workload == self._workload]
        return found

    def _follow(self) -> None:
        path, serves = self._cluster.deployments(self._workload), -1
        while not self._stop.wait(EVERY_S):
            try:
                now = self._cluster.plane.get(path)["status"].get("readyReplicas", 0)
                if now == serves:
                    continue
                decision = scale(f"serving-{time.time_ns()}", workload=self._workload, cell=self._cell, after=now)
                observed = self._fleet.observe(decision)
                assert not isinstance(observed, Rejected), observed
                handle = self._fleet.submit(decision, observed, dry_run=False)
                if isinstance(handle, Handle):  # another version is asked again
                    serves = now
                    self.ready.append(now)
            except (PlatformError, TransportError, OSError):
                continue  # it starts, or ends
            except BaseException as error:
                self.error = error
                return
