"""Controllers of others on the control plane: their processes, and how the API server asks them; see `Operator`."""

import base64
import shutil
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.brokers.server import LOOPBACK, Server, free_ports
from tests.kubernetes.controlplane import ADMIN, ControlPlane

READY_S = 90.0


class Operator:
    """A controller that has a namespace, a Service that leads to this machine, and a certificate that is mounted."""

    def __init__(self, plane: ControlPlane, work: Path, name: str) -> None:
        self.plane, self.work, self.name = plane, work, name
        self.port, self.health = free_ports(2)
        self.certs = work / "k8s-webhook-server" / "serving-certs"  # controller-runtime's default, with this TMPDIR
        self.certs.mkdir(parents=True)
        made = plane.certificate(f"{name}-serving", host=f"*.{name}.svc")
        for source, target in (("crt", "tls.crt"), ("key", "tls.key"), ("crt", "ca.crt")):
            shutil.copy(f"{made}.{source}", self.certs / target)
        self.bundle = base64.b64encode((self.certs / "ca.crt").read_bytes()).decode()
        self._servers: list[Server] = []
        outside = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]}
        plane.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": name}, "spec": outside},
        )

    def close(self) -> None:
        """End it."""
        for server in self._servers:
            server.stop(5.0)

    def start(
        self, program: Path, *arguments: str, ready: Callable[[], bool] | None = None, **environment: str
    ) -> None:
        """Run a program of it with an administrator's rights, and wait until it is ready."""
        settings = {"HOME": str(self.work), "TMPDIR": str(self.work), "KUBECONFIG": str(self.plane.kubeconfig(ADMIN))}
        command = [str(program), *arguments]
        log = self.work / f"{program.name}.log"
        server = Server(program.name, command, log, environment={**settings, **environment})
        self._servers.append(server)
        try:
            server.wait_until(ready or self.ready, READY_S)
        except BaseException:
            self.close()
            raise

    def ready(self) -> bool:
        """Whether it says so."""
        address = f"http://{LOOPBACK}:{self.health}/readyz"
        with suppress(OSError), urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
        return False
