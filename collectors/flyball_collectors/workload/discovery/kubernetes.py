"""Discovery of this node's pods by their annotations, the owners of names, and whether the node takes more pods.

A pod takes part when it is annotated ``prometheus.io/scrape: "true"`` and ``flyball.dev/workload: NAME``,
and ``flyball.dev/server`` names the server whose series it has. Further annotations: ``flyball.dev/work`` (``requests``
or ``tokens``), ``prometheus.io/port`` (by default the first port of its containers), ``prometheus.io/path``
(``/metrics``), ``prometheus.io/scheme`` (``http``) and ``flyball.dev/model`` (which of several models on the page it
is). The replica is named after the pod.

A node takes no more pods while it is cordoned, not ready, or has a taint by which it is about to leave. Taints that
reserve it for some pods close nothing: what it runs tolerates them.

The controller writes to the object ``WorkloadNames`` which namespaces names belong to. Without a controller there is no
such object, and a pod bears a name without a ``/`` only where a rule of the agent lets it; the same holds for names
that the object lacks, if no controller reads the whole cluster.
"""

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from flyball_collectors.parameters import KubernetesParameters
from flyball_collectors.workload.discovery.base import DiscoveredReplica, NodeState, Watch
from flyball_collectors.workload.scraping.token import FetchError, MissingError, token_of
from flyball_contracts.declared.names import ANNOTATION, NAMES_PATH, NamesObject, NamesSpec
from flyball_contracts.errors import ConfigError
from flyball_contracts.nodes.kubernetes import KubernetesNode

_LIST_BYTES = 32 * 1024 * 1024
_LIVE = ("Pending", "Running")
_JSON = "application/json"


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class _ContainerPort(msgspec.Struct, frozen=True):
    containerPort: int


class _Container(msgspec.Struct, frozen=True):
    name: str = ""
    ports: tuple[_ContainerPort, ...] = ()


class _Spec(msgspec.Struct, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""
    podIP: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _PodList(msgspec.Struct, frozen=True):
    items: tuple[_Pod, ...] = ()


def pods_of(body: bytes) -> tuple[DiscoveredReplica, ...]:
    """The pods of a ``PodList`` that take part, in its order. Raises :class:`FetchError` for an invalid list."""
    try:
        listed = msgspec.json.decode(body, type=_PodList)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FetchError(f"not a list of pods ({error}); see KUBERNETES_SERVICE_HOST") from error
    found = (_found(pod) for pod in listed.items if pod.status.phase in _LIVE)
    return tuple(one for one in found if one is not None)


def _found(pod: _Pod) -> DiscoveredReplica | None:
    annotations = pod.metadata.annotations
    workload = annotations.get(ANNOTATION, "")
    if not workload or annotations.get("prometheus.io/scrape", "").lower() != "true":
        return None
    ports = [str(port.containerPort) for container in pod.spec.containers for port in container.ports]
    port = annotations.get("prometheus.io/port") or next(iter(ports), "")
    address = f"[{pod.status.podIP}]" if ":" in pod.status.podIP else pod.status.podIP
    path = "/" + annotations.get("prometheus.io/path", "/metrics").lstrip("/")
    scheme = annotations.get("prometheus.io/scheme", "http")
    usable = port.isdecimal() and 0 < int(port) < 65536 and scheme in ("http", "https")
    url = f"{scheme}://{address}:{port}{path}" if address and usable else ""
    return DiscoveredReplica(
        runtime="kubernetes",
        workload=workload,
        replica=pod.metadata.name,
        labels=(("namespace", pod.metadata.namespace), ("pod", pod.metadata.name), ("uid", pod.metadata.uid)),
        url=url,
        server=annotations.get("flyball.dev/server", ""),
        work=annotations.get("flyball.dev/work", "requests"),
        model=annotations.get("flyball.dev/model", ""),
        pending=pod.status.phase == "Pending",
    )


def node_state_of(body: bytes) -> NodeState:
    """The state of a ``Node``. Raises :class:`FetchError` for an invalid one."""
    try:
        shown = msgspec.json.decode(body, type=KubernetesNode)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FetchError(f"not a node ({error}); see KUBERNETES_SERVICE_HOST") from error
    return NodeState(shown.takes_pods, shown.cordon)


def homes_of(body: bytes) -> NamesSpec:
    """The namespaces of names in a ``WorkloadNames`` object. Raises :class:`FetchError` for an invalid one."""
    try:
        return msgspec.json.decode(body, type=NamesObject).spec
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FetchError(f"no names of workloads ({error}); see KUBERNETES_SERVICE_HOST") from error


class PodWatch(Watch):
    """Queries the API server. Raises :class:`ConfigError` without one."""

    warning = "pods of this node, the owners of names, or its state cannot be read: %s; what was found before is kept"

    def __init__(self, settings: KubernetesParameters, node: str, timeout_s: float, environ: Mapping[str, str]) -> None:
        name = quote(settings.node or node, safe="")
        self._path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}&resourceVersion=0"
        self._node_path = f"/api/v1/nodes/{name}?resourceVersion=0"
        url = settings.url.rstrip("/") or _in_cluster(environ)
        token = token_of(settings.token_file)
        from flyball_collectors.workload.scraping.fetch import Fetcher

        self._server = Fetcher(url, timeout_s, _LIST_BYTES, token, settings.ca_file)
        super().__init__("kubernetes-pods", settings.period_s, 2 * timeout_s)

    def hurry(self) -> None:
        """Abort a request that takes too long."""
        self._server.hurry()

    def close(self) -> None:
        """End the thread and its request."""
        self._stop.set()
        self._server.abort()
        super().close()

    def _look(self) -> tuple[tuple[DiscoveredReplica, ...], str]:
        problems = [self._look_for_names()]  # first: no pod counts under a name that is another's
        found = pods_of(self._server.get(self._path, _JSON))
        try:
            self.node = node_state_of(self._server.get(self._node_path, _JSON))
        except FetchError as error:
            problems.append(f"{error}; without get on nodes no cordon of this node is seen")
        problems = [problem for problem in problems if problem]
        self.errors += len(problems)
        return found, "; ".join(problems)

    def _look_for_names(self) -> str:
        try:
            homes = homes_of(self._server.get(f"{NAMES_PATH}?resourceVersion=0", _JSON))
        except MissingError:
            homes = NamesSpec()
        except FetchError as error:
            return f"{error}; without get on workloadnames no name is kept for the namespace that it belongs to"
        if homes != self.homes:
            self.homes = homes
        return ""

    def _run(self) -> None:
        super()._run()
        self._server.close()


def _in_cluster(environ: Mapping[str, str]) -> str:
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        where = "agent.workloads.discover"
        raise ConfigError(
            f"{where}: the agent is no pod (KUBERNETES_SERVICE_HOST is not set); run it as one, or take kubernetes away"
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
