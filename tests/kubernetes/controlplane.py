"""A Kubernetes control plane on loopback, from the binaries of infra/controlplane/fetch; see `ControlPlane`."""

import json
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from tests.brokers.server import LOOPBACK, Server, free_ports

READY_S = 90.0
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
ADMIN, ACTUATOR, CONTROLLER, AUTOSCALER = "admin-token", "actuator-token", "controller-token", "autoscaler-token"
AGENT = "agent-token"
ACTUATOR_USER = "system:serviceaccount:flyball:flyball-actuator"
CONTROLLER_USER = "system:serviceaccount:flyball:flyball-controller"
AUTOSCALER_USER = "system:serviceaccount:flyball:flyball-autoscaler"
AGENT_USER = "system:serviceaccount:flyball:flyball-agent"
STAGES = Path(__file__).with_name("stages.yaml")
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_APPLY = "application/apply-patch+yaml"
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {
            "level": "Metadata",
            "users": [ACTUATOR_USER, CONTROLLER_USER, AUTOSCALER_USER, AGENT_USER],
            "omitStages": ["RequestReceived"],
        },
        {
            "level": "Metadata",
            "verbs": ["update", "patch"],
            "resources": [{"group": "apps", "resources": ["deployments/scale"]}],
        },
        {"level": "None"},
    ],
}


def missing(folder: Path) -> str | None:
    """Why the tests on a control plane cannot run, if so."""
    absent = [name for name in PROGRAMS if not (folder / name).is_file()]
    return f"no {', '.join(absent)} in {folder}; run infra/controlplane/fetch" if absent else None


class ControlPlane:
    """etcd, API server, controller manager, scheduler and kwok; `request` speaks as an administrator.

    The user of the token `ACTUATOR` is the actuator's service account, with no rights but those that a test grants.
    """

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries, self._folder = binaries, folder
        self._stack = ExitStack()
        self._servers: dict[str, Server] = {}
        self._serving: tuple[str, ...] = ()
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE  # it makes its own certificate
        ports = free_ports(5)
        self._etcd, self._peer, self._port, self._manager, self._scheduler = ports
        self.url = f"https://{LOOPBACK}:{self._port}"
        self.audit = folder / "audit.log"
        self.crashes_ns: list[int] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        token: str = ADMIN,
        content_type: str = "application/json",
    ) -> tuple[int, Any]:
        """Status and decoded answer of one call."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": content_type}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._context) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                content = error.read()
                # A path that is not served yet is answered in plain text.
                return error.code, json.loads(
                    content or b"null"
                ) if "json" in error.headers.get_content_type() else content

    def apply(self, *documents: Any) -> None:
        """Server-side apply of documents, as `kubectl apply --server-side` does."""
        for document in documents:
            path = path_of(document)
            status, answer = self.request(
                "PATCH", f"{path}?fieldManager=test&force=true", document, content_type=_APPLY
            )
            assert status in (200, 201), f"{path}: {status}: {answer}"

    def get(self, path: str) -> Any:
        """An object that is there."""
        status, found = self.request("GET", path)
        assert status == 200, f"{path}: {status}: {found}"
        return found

    @property
    def logs(self) -> list[Path]:
        """What each server wrote."""
        return sorted(set(self._folder.glob("*.log")) - {self.audit})

    def calls(self, user: str = ACTUATOR_USER) -> list[dict[str, Any]]:
        """What a user asked of the server so far, the actuator by default, as the audit log has it."""
        calls = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [call for call in calls if call["user"]["username"] == user]

    def writes(self, path: str) -> list[dict[str, Any]]:
        """Writes of all clients at the path of a Deployment's scale so far, as the audit log has them."""
        calls = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [call for call in calls if call["verb"] != "get" and call["requestURI"].split("?")[0] == path]

    @property
    def authority(self) -> Path:
        """The certificate that verifies the API server."""
        return self._folder / "certs" / "apiserver.crt"

    def kubeconfig(self, token: str = ACTUATOR) -> Path:
        """A file that names this server and a token."""
        path = self._folder / f"{token}.kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "test",
                            "cluster": {
                                "server": self.url,
                                "certificate-authority": str(self.authority),
                            },
                        }
                    ],
                    "users": [{"name": "user", "user": {"token": token}}],
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
                    "current-context": "test",
                }
            )
        )
        return path

    def certificate(self, name: str, authority: str = "", host: str = "") -> Path:
        """Make a certificate of a common name, `PATH.crt` and `PATH.key`: an authority's own, or issued by one."""
        path = self._folder / name
        command = ["openssl", "req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={path.name}"]
        command += ["-keyout", f"{path}.key", "-out", f"{path}.crt"]
        if authority:
            issuer = self._folder / authority
            command += ["-CA", f"{issuer}.crt", "-CAkey", f"{issuer}.key"]
            command += ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "extendedKeyUsage=clientAuth"]
        if host:
            command += ["-addext", f"subjectAltName={'IP' if host == LOOPBACK else 'DNS'}:{host}"]
        subprocess.run(command, check=True, capture_output=True)
        return path

    def nodes(self, count: int, gpus: int = 8) -> list[str]:
        """Make nodes with so many GPUs each."""
        room = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        names = [f"gpu-{i}" for i in range(count)]
        for name in names:
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            shown = {"capacity": room, "allocatable": room}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": shown}
            status, answer = self.request("POST", "/api/v1/nodes", node)
            assert status == 201, answer
        return names

    def crash(self, for_s: float) -> None:
        """Kill the API server, and start it again after a while; what it stored is there."""
        self.crashes_ns.append(time.time_ns())
        self._servers["kube-apiserver"].kill()
        time.sleep(for_s)
        self._run("kube-apiserver", *self._serving)
        self._servers["kube-apiserver"].wait_until(self._ready, READY_S)

    def stall(self, for_s: float) -> None:
        """Let the API server stand still: what was asked may be done later, or was done and is never answered."""
        server = self._servers["kube-apiserver"]
        server.send(signal.SIGSTOP)
        time.sleep(for_s)
        server.send(signal.SIGCONT)

    @contextmanager
    def controllers_paused(self) -> Generator[None]:
        """Let the controller-manager stand still."""
        server = self._servers["kube-controller-manager"]
        server.send(signal.SIGSTOP)
        try:
            yield
        finally:
            server.send(signal.SIGCONT)

    def _start(self) -> None:
        certs = self._folder / "certs"
        certs.mkdir()
        # The key that the server would make for itself is RSA, which is slow in handshakes.
        self.certificate("certs/apiserver", host=LOOPBACK)
        key = self._folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        policy = self._folder / "audit.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT))
        tokens = self._folder / "tokens.csv"
        users = [(ACTUATOR, ACTUATOR_USER), (CONTROLLER, CONTROLLER_USER), (AUTOSCALER, AUTOSCALER_USER)]
        users.append((AGENT, AGENT_USER))
        lines = [f'{ADMIN},admin,admin,"system:masters"', *(f"{token},{user},{token}" for token, user in users)]
        tokens.write_text("".join(f"{line}\n" for line in lines))
        proxy_ca, proxy = self.certificate("front-proxy-ca"), self.certificate("front-proxy-client", "front-proxy-ca")
        self._run(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls=http://{LOOPBACK}:{self._etcd}",
            f"--advertise-client-urls=http://{LOOPBACK}:{self._etcd}",
            f"--listen-peer-urls=http://{LOOPBACK}:{self._peer}",
            "--unsafe-no-fsync",
        )
        self._serving = (
            f"--etcd-servers=http://{LOOPBACK}:{self._etcd}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self._port}",
            f"--cert-dir={certs}",
            "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--disable-admission-plugins=ServiceAccount",
            "--profiling=false",
            "--feature-gates=WatchList=false",  # Debian's etcd cannot
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit}",
            f"--requestheader-client-ca-file={proxy_ca}.crt",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy}.crt",
            f"--proxy-client-key-file={proxy}.key",
        )
        self._run("kube-apiserver", *self._serving)
        self._servers["kube-apiserver"].wait_until(self._ready, READY_S)
        config = self.kubeconfig(ADMIN)
        # A machine that is busy must not look like nodes that have failed.
        patient = ("--node-monitor-grace-period=10m", "--horizontal-pod-autoscaler-sync-period=1s")
        for name, port, more in (
            ("kube-controller-manager", self._manager, patient),
            ("kube-scheduler", self._scheduler, ()),
        ):
            self._run(
                name,
                *more,
                f"--kubeconfig={config}",
                f"--authentication-kubeconfig={config}",
                f"--authorization-kubeconfig={config}",
                "--authentication-tolerate-lookup-failure=true",
                "--leader-elect=false",
                f"--bind-address={LOOPBACK}",
                f"--secure-port={port}",
                f"--cert-dir={self._folder / name}",
            )
        self._run(
            "kwok",
            f"--kubeconfig={config}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            f"--config={STAGES}",
        )

    def _run(self, name: str, *arguments: str) -> None:
        environment = {"HOME": str(self._folder), "GOGC": "400"}  # less CPU time for more memory
        server = Server(
            name, [str(self.binaries / name), *arguments], self._folder / f"{name}.log", environment=environment
        )
        self._servers[name] = server
        self._stack.callback(server.stop, 2.0)

    def _ready(self) -> bool:
        try:
            request = urllib.request.Request(f"{self.url}/readyz", headers={"Authorization": f"Bearer {ADMIN}"})
            with urllib.request.urlopen(request, timeout=5, context=self._context) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except OSError:  # an answer of another status is one, too
            return False


def path_of(document: Any) -> str:
    """Path of an object in the API."""
    version, kind, metadata = document["apiVersion"], document["kind"], document["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    plural = kind.lower() + "s" if not kind.endswith("y") else kind.lower().removesuffix("y") + "ies"
    space = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{space}/{plural}/{metadata['name']}"
