"""The external metrics API of Kubernetes, which HorizontalPodAutoscalers query for the number of replicas.

It is an aggregated API: autoscalers query the API server, which checks their rights and forwards the request with its
front proxy's certificate. Requests without that certificate are refused. Paths and objects are those of
``external.metrics.k8s.io/v1beta1``.
"""

import json
import logging
import socket
import ssl
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from flyball_actuators.platforms.autoscaler.certificate import key_of
from flyball_actuators.platforms.autoscaler.desired import DesiredReplicas
from flyball_actuators.platforms.autoscaler.horizontal import METRIC
from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.kubernetes.api import Api
from flyball_actuators.platforms.kubernetes.kinds import SCALED
from flyball_actuators.platforms.kubernetes.targets import Target
from flyball_contracts.config import ScalerConfig
from flyball_contracts.errors import ConfigError

_LOG = logging.getLogger(__name__)
GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
FRONT_PROXY = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_SILENCE_S = 30.0
_LABELS = frozenset({"kind", "name"})


class FrontProxy(NamedTuple):
    """The certificate authorities of the front proxy, in PEM, and its allowed common names.

    Without names all are allowed.
    """

    authorities: str
    names: frozenset[str]


def front_proxy(api: Api, where: str) -> FrontProxy:
    """Read the front proxy of the cluster's API server from the ConfigMap that publishes it.

    Raises :class:`ConfigError` if it cannot be read, or if the API server has no front proxy.
    """
    try:
        answer = api.get(FRONT_PROXY)
    except PlatformError as error:
        raise ConfigError(f"{where}.scaler.metrics: the cluster does not answer: {error}") from error
    if not answer.ok:
        raise ConfigError(
            f"{where}.scaler.metrics: the front proxy cannot be read (HTTP {answer.status}: {answer.message}); "
            "bind Role kube-system/extension-apiserver-authentication-reader, as infra/kubernetes/autoscaler.yaml does"
        )
    settings: Mapping[str, str] = answer.body.get("data") or {}
    authorities = settings.get("requestheader-client-ca-file", "")
    if not authorities:
        raise ConfigError(
            f"{where}.scaler.metrics: the API server has no front proxy; start it with --requestheader-client-ca-file, "
            "or use scaler.keda"
        )
    return FrontProxy(authorities, frozenset(json.loads(settings.get("requestheader-allowed-names") or "[]")))


@contextmanager
def metrics_serving(wanted: DesiredReplicas, api: Api, config: ScalerConfig, where: str) -> Generator[str]:
    """Serve the API at ``config.metrics`` during the block; yields HOST:PORT.

    Raises :class:`ConfigError` for an address, certificate or cluster that cannot be used.
    """
    if not config.certificate:
        raise ConfigError(
            f"{where}.scaler.certificate: the external metrics API speaks TLS; name a certificate and its key"
        )
    proxy = front_proxy(api, where)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=proxy.authorities)
        context.load_cert_chain(config.certificate, key_of(config))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}.scaler.certificate: {config.certificate}: {error}; name PEM files") from error
    host, _, port = config.metrics.rpartition(":")
    handler = type("Handler", (_Handler,), {"wanted": wanted, "names": proxy.names})
    try:
        server = _Server((host, int(port)), handler)
    except (OSError, ValueError, OverflowError) as error:
        raise ConfigError(f"{where}.scaler.metrics: {config.metrics}: {error}; give a free HOST:PORT") from error
    server.secure(context, config)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics-api", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        server.close_connections()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    context: ssl.SSLContext
    files: tuple[str, str]
    changed: tuple[float, ...]
    open: set[ssl.SSLSocket]

    def secure(self, context: ssl.SSLContext, config: ScalerConfig) -> None:
        self.context, self.files, self.open = context, (config.certificate, key_of(config)), set()
        self.changed = self._changed()

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        self._renew()
        # The handshake waits until the connection has a thread of its own: a silent client blocks no other.
        secured = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        self.open.add(secured)
        return secured, address

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def close_connections(self) -> None:
        """Close persistent connections, so that the API server gets no answer from a server that has stopped."""
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.debug("a request of %s broke off", client_address, exc_info=True)

    def _renew(self) -> None:
        """Load the certificate again if its files have changed."""
        try:
            changed = self._changed()
            if changed != self.changed:
                self.context.load_cert_chain(*self.files)
                self.changed = changed
        except OSError as error:
            _LOG.warning("%s: %s; the certificate from before is used", self.files[0], error)

    def _changed(self) -> tuple[float, ...]:
        return tuple(Path(file).stat().st_mtime for file in self.files)


class _Handler(BaseHTTPRequestHandler):
    wanted: DesiredReplicas
    names: frozenset[str]
    protocol_version = "HTTP/1.1"
    timeout = _SILENCE_S
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer a request."""
        who = _common_name(self.connection.getpeercert() or {})
        if self.names and who not in self.names:
            self._send(HTTPStatus.FORBIDDEN, _status(403, "Forbidden", f"{who!r} is not the API server's front proxy"))
            return
        url = urlsplit(self.path)
        path = tuple(unquote(part) for part in url.path.strip("/").split("/"))
        selector = parse_qs(url.query).get("labelSelector", [""])[0]
        match path:
            case ("healthz" | "readyz" | "livez",):
                self._send(HTTPStatus.OK, {"status": "ok"})
            case ("apis",):
                self._send(HTTPStatus.OK, {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]})
            case ("apis", group) if group == GROUP:
                self._send(HTTPStatus.OK, {"kind": "APIGroup", "apiVersion": "v1", **_GROUP})
            case ("apis", group, version) if (group, version) == (GROUP, VERSION):
                self._send(HTTPStatus.OK, _RESOURCES)
            case ("apis", group, version, "namespaces", namespace, metric) if (group, version) == (GROUP, VERSION):
                self._send(*_values(self.wanted, namespace, metric, selector))
            case _:
                self._send(HTTPStatus.NOT_FOUND, _status(404, "NotFound", f"there is no {url.path}"))

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request."""
        _LOG.debug(format, *args)

    def _send(self, status: HTTPStatus, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


_NEWEST = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
_GROUP = {"name": GROUP, "versions": [_NEWEST], "preferredVersion": _NEWEST}
_RESOURCES = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [
        {"name": METRIC, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
    ],
}


def target_of(namespace: str, labels: Mapping[str, str]) -> Target | str:
    """The object that ``name`` and ``kind`` select (a Deployment by default), or what is wrong with them."""
    kind, name = labels.get("kind", "Deployment"), labels.get("name", "")
    if not name:
        return "name the object that is scaled: name: NAME and, unless it is a Deployment, kind: KIND"
    if kind not in {one.name for one in SCALED}:
        return f"kind {kind!r} has no replicas that an autoscaler sets; use {', '.join(one.name for one in SCALED)}"
    return Target(kind, namespace, name)


def _values(wanted: DesiredReplicas, namespace: str, metric: str, selector: str) -> tuple[HTTPStatus, object]:
    if metric != METRIC:
        return HTTPStatus.NOT_FOUND, _status(404, "NotFound", f"there is no metric {metric!r}; query {METRIC}")
    pairs = [part.partition("=") for part in selector.split(",") if part]
    labels = {name.strip(): value.removeprefix("=").strip() for name, _, value in pairs}
    if set(labels) - _LABELS or not all(sign for _, sign, _ in pairs):
        return HTTPStatus.BAD_REQUEST, _status(400, "BadRequest", f"selector {selector!r}: use name=NAME,kind=KIND")
    target = target_of(namespace, labels)
    if isinstance(target, str):
        return HTTPStatus.BAD_REQUEST, _status(400, "BadRequest", target)
    try:
        found = wanted.replicas_for(target)
    except PlatformError as error:
        return HTTPStatus.SERVICE_UNAVAILABLE, _status(503, "ServiceUnavailable", str(error))
    if isinstance(found, Rejected):
        return HTTPStatus.NOT_FOUND, _status(404, "NotFound", found.detail)
    item = {
        "metricName": METRIC,
        "metricLabels": {"kind": target.kind, "name": target.name},
        "timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "value": str(found),
    }
    return HTTPStatus.OK, {
        "kind": "ExternalMetricValueList",
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {},
        "items": [item],
    }


def _status(code: int, reason: str, message: str) -> object:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def _common_name(certificate: Mapping[str, Any]) -> str:
    pairs = (pair for part in certificate.get("subject", ()) for pair in part)
    return next((str(value) for name, value in pairs if name == "commonName"), "")
