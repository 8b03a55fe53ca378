"""Any platform behind the HTTP interface of ``flyball_contracts.webhook``."""

import http.client
import os
import socket
from typing import TypeVar
from urllib.parse import quote

import msgspec

from flyball_actuators.platforms.base import (
    Capabilities,
    Done,
    Failed,
    Handle,
    PlatformError,
    Progress,
    Promises,
    Rejected,
    Running,
    Superseded,
)
from flyball_actuators.platforms.calls import check_stop, record_call
from flyball_actuators.platforms.endpoint import checked, is_local, trusted
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records import AnyDecision, SubjectState
from flyball_contracts.security.secret import secret
from flyball_contracts.webhook import Cell, Operation, Rejection, Submission

T = TypeVar("T")
_EXAMPLE = "http://127.0.0.1:8099"
_LARGEST_BYTES = 16 * 1024 * 1024
_encoder = msgspec.json.Encoder()


def token_of(entry: PlatformConfig, where: str) -> str:
    """Secret that authenticates to the server; only a server on this machine may be used without one.

    Raises :class:`ConfigError`.
    """
    parts = trusted(entry.url, where, _EXAMPLE)
    if not entry.token_env:
        if is_local(parts):
            return ""
        raise ConfigError(
            f"{where}.token_env: none is named; put the secret by which the server knows this actuator into a variable "
            "of the environment, and name the variable"
        )
    return secret(os.environ, entry.token_env, f"{where}.token_env", in_header=True)


class WebhookPlatform:
    """A cell behind a server that implements ``flyball_contracts.webhook``.

    Each request carries ``token`` if there is one. A TLS server is verified against the machine's certificate
    authorities, or those in the file named by SSL_CERT_FILE. ``where`` names the configuration entry in errors.
    """

    name = "webhook"
    capabilities: Capabilities = Capabilities(
        kinds=frozenset({"Scale", "Migrate", "Preempt"}),
        tracks=True,
        promises=Promises(dry_run="platform", victims=True),
    )

    def __init__(self, url: str, timeout_s: float, where: str = "platform", *, token: str = "") -> None:
        parts = checked(url, where, _EXAMPLE)
        self._url, self._timeout_s = url, timeout_s
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._cell = ""

    def cell(self) -> str:
        """The cell that the server runs; requested once, and again after an error."""
        if not self._cell:
            status, body = self._call("GET", "/v1/cell")
            self._cell = self._read(status, body, Cell, 200).cell
        return self._cell

    def observe(self, decision: AnyDecision) -> SubjectState | Rejected:
        """State of the workload as the server reports it, with the nodes of the replicas that the decision names."""
        cell = self.cell()
        if decision.cell != cell:
            return Rejected(
                "no_platform",
                f"the platform at {self._url} runs cell {cell!r}, not {decision.cell!r}; correct actuator.platforms",
            )
        status, body = self._call("GET", f"/v1/workloads/{quote(decision.workload, safe='')}")
        if status == http.client.NOT_FOUND:
            return _refused(self._read(status, body, Rejection, status))
        state = self._read(status, body, SubjectState, 200)
        named = {name: state.nodes[name] for name in decision.named_replicas if name in state.nodes}
        return msgspec.structs.replace(state, nodes=named)

    def submit(self, decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        """Post the decision with the version that was observed."""
        submission = Submission(decision=decision, version=observed.version, dry_run=dry_run)
        if not dry_run:
            check_stop()
        status, body = self._call("POST", "/v1/operations", _encoder.encode(submission))
        if status in (http.client.NOT_FOUND, http.client.CONFLICT, http.client.UNPROCESSABLE_ENTITY):
            return _refused(self._read(status, body, Rejection, status))
        operation = self._read(status, body, Operation, 200, 202)
        return self._handle(operation, decision, "" if dry_run else operation.id)

    def poll(self, handle: Handle) -> Progress:
        """Status of the operation."""
        status, body = self._call("GET", f"/v1/operations/{quote(handle.operation, safe='')}")
        if status == http.client.NOT_FOUND:
            return Failed(
                f"unknown outcome: the platform at {self._url} knows no operation {handle.operation}; was it "
                "restarted? Look at the workload"
            )
        operation = self._read(status, body, Operation, 200)
        if operation.status == "running":
            return Running(operation.detail)
        if operation.status == "failed":
            return Failed(operation.detail, operation.observed)
        if operation.status == "superseded":
            return Superseded(operation.detail, operation.observed)
        if operation.ended_ns is None:
            raise PlatformError(f"{self._url}: operation {operation.id} is done, but has no end time")
        return Done(operation.observed, operation.ended_ns, operation.detail)

    def find(self, decision: AnyDecision, observed: SubjectState | None) -> Handle | None:
        """Look up the operation by the decision's id."""
        status, body = self._call("GET", f"/v1/operations/{quote(decision.id, safe='')}")
        if status == http.client.NOT_FOUND:
            self._read(status, body, Rejection, status)  # a Rejection of the interface: not just any server's 404
            return None
        operation = self._read(status, body, Operation, 200)
        return self._handle(operation, decision, operation.id)

    def _handle(self, operation: Operation, decision: AnyDecision, name: str) -> Handle:
        if operation.id != decision.id or operation.workload != decision.workload:
            raise PlatformError(
                f"{self._url}: asked about {decision.id} of {decision.workload!r}, answered about {operation.id} of "
                f"{operation.workload!r}"
            )
        return Handle(operation=name, expected=operation.expected, answer=operation.detail)

    def _call(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=self._timeout_s)
        try:
            headers = self._headers | ({"Content-Type": "application/json"} if body else {})
            connection.request(method, self._path + path, body, headers)
            response = connection.getresponse()
            answer = response.read(_LARGEST_BYTES)
            if body is not None:
                record_call(method, path, response.status, response.getheader("X-Request-Id", ""))
            return response.status, answer
        except (OSError, http.client.HTTPException) as error:
            problem = f"no answer in {self._timeout_s:g} s" if isinstance(error, socket.timeout) else _message(error)
            self._cell = ""  # another server may listen there when it is back
            if body is not None:
                record_call(method, path, f"no answer: {problem}")
            raise PlatformError(f"{method} {self._url}{path}: {problem}") from error
        finally:
            connection.close()

    def _read(self, status: int, body: bytes, kind: type[T], *expected: int) -> T:
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise PlatformError(f"{self._url}: HTTP {status}: it does not take the token; check token_env")
        if status not in expected:
            raise PlatformError(f"{self._url}: HTTP {status}: {body[:200].decode('utf-8', 'replace')}")
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PlatformError(f"{self._url}: the answer is no {kind.__name__}: {error}") from error


def _refused(rejection: Rejection) -> Rejected:
    return Rejected(rejection.code, rejection.detail, rejection.unsuitable_nodes)


def _message(error: Exception) -> str:
    return str(error) or type(error).__name__
