"""Calls one Kubernetes API server: paths and JSON in, answers out. Credentials and TLS are the official client's."""

import json
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import urlencode

from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.calls import check_stop, record_call
from flyball_contracts.errors import ConfigError

MERGE = "application/merge-patch+json"
JSON = "application/json"
APPLY = "application/apply-patch+yaml"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
RBAC = "infra/kubernetes/actuator.yaml"
_PAGE = 500
_CONNECTIONS = 100  # kept open; each kind that is watched in a namespace needs one
_GONE = 410


class Answer(NamedTuple):
    """The server's response; ``audit_id`` names the request in its audit log, ``version`` is a list's resource version.

    ``rights`` is the manifest that grants the requested access.
    """

    status: int
    body: Any
    audit_id: str
    version: str = ""
    rights: str = RBAC

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The server's message."""
        try:
            return str(self.body["message"])
        except (KeyError, TypeError):
            return ""


class Api:
    """Calls one server with the credentials of a kubeconfig or, without one, of the pod's service account.

    ``where`` names the configuration entry in errors, ``rights`` the manifest that grants missing access. Raises
    :class:`ConfigError` without credentials.
    """

    def __init__(self, kubeconfig: str, timeout_s: float, where: str, rights: str = RBAC) -> None:
        try:
            config: Any = import_module("kubernetes.config")
            client: Any = import_module("kubernetes.client")
            self._errors: Any = import_module("urllib3.exceptions").HTTPError
        except ImportError as error:
            raise ConfigError(f"{where}.driver: kubernetes needs pip install 'flyball[kubernetes]'") from error
        settings = client.Configuration()
        try:
            if kubeconfig:
                config.load_kube_config(kubeconfig, None, settings)
            else:
                config.load_incluster_config(settings)
        except (config.ConfigException, OSError) as error:
            what = f"kubeconfig: {kubeconfig}" if kubeconfig else "kubeconfig: none is named, and this is no pod"
            response = str(error).rstrip(".")
            raise ConfigError(f"{where}.{what}: {response}; name a file that `kubectl --kubeconfig` can use") from error
        settings.retries = False  # retries are decided here, not in the library
        settings.connection_pool_maxsize = _CONNECTIONS
        self.host: str = settings.host
        self._failure: Any = client.ApiException
        self._client: Any = client.ApiClient(settings)
        self._timeout_s, self._rights = timeout_s, rights

    def get(self, path: str) -> Answer:
        """Read one object."""
        return self.call("GET", path)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: tuple[tuple[str, str], ...] = (),
        kind: str = JSON,
        known: tuple[int, ...] = (),
    ) -> Answer:
        """Make one call; ``kind`` is the content type of the body, or for ``GET`` the accepted type.

        ``known`` are error statuses that the caller handles itself. Raises :class:`PlatformError` if the effect of the
        call is unknown, :class:`StoppedError` if it would change something and changes are stopped.
        """
        if method != "GET" and ("dryRun", "All") not in query:
            check_stop()
        headers = {"Accept": kind} if method == "GET" else {"Accept": JSON, "Content-Type": kind}
        try:
            raw = self._client.call_api(
                path,
                method,
                query_params=list(query),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=self._timeout_s,
            )
            status, content, named = raw.status, raw.data, raw.headers
        except self._failure as error:
            status, content, named = error.status, error.body, error.headers
        except (self._errors, OSError) as error:
            if method != "GET":
                record_call(method, _shown(path, query), f"no answer: {type(error).__name__}")
            raise PlatformError(f"{method} {self.host}{path}: {error}") from error
        audit_id = named.get("Audit-Id", "") if named else ""
        answer = Answer(status, _decoded(content), audit_id, rights=self._rights)
        if method != "GET":
            record_call(method, _shown(path, query), status, answer.audit_id)
        if not status or (status in (401, 429) and status not in known) or status >= 500:
            raise PlatformError(f"{method} {self.host}{path}: HTTP {status}: {answer.message or content!r}")
        return answer

    def listed(self, path: str, query: tuple[tuple[str, str], ...] = (), kind: str = JSON) -> Answer:
        """All items of a list, page by page; on success ``body`` is the list of items."""
        items: list[Any] = []
        more = ""
        while True:
            page = self.call(
                "GET", path, None, (*query, ("limit", str(_PAGE)), *((("continue", more),) if more else ())), kind
            )
            if not page.ok:
                return page
            items += page.body.get("items") or ()
            more = page.body.get("metadata", {}).get("continue", "")
            if not more:
                return page._replace(body=items, version=page.body.get("metadata", {}).get("resourceVersion", ""))

    def watch(self, path: str, version: str, query: tuple[tuple[str, str], ...], within_s: float) -> "WatchEvents":
        """Watch a list from a resource version on, for at most ``within_s``; raises as :meth:`call`.

        A version that is too old raises :class:`Expired`.
        """
        watch_query = (
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(round(within_s))),
        )
        try:
            raw = self._client.call_api(
                path,
                "GET",
                query_params=[*query, *watch_query],
                header_params={"Accept": JSON},
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=(self._timeout_s, within_s + self._timeout_s),
            )
        except self._failure as error:
            if error.status == _GONE:
                raise Expired from error
            raise PlatformError(f"WATCH {self.host}{path}: HTTP {error.status}") from error
        except (self._errors, OSError) as error:
            raise PlatformError(f"WATCH {self.host}{path}: {error}") from error
        return WatchEvents(raw, self._errors, f"WATCH {self.host}{path}")


class Expired(Exception):
    """The requested resource version is no longer available: list again."""


class WatchEvents:
    """Events of a watch, each ``(type, object)``; :meth:`close` may be called from another thread."""

    def __init__(self, raw: Any, errors: Any, what: str) -> None:
        self._raw, self._errors, self._what = raw, errors, what

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        rest = b""
        try:
            for chunk in self._raw.stream(decode_content=False):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield self._event(line)
        except (self._errors, OSError) as error:
            raise PlatformError(f"{self._what}: {error}") from error
        finally:
            self._raw.close()  # the next call on this connection would read what is still unread
            self._raw.release_conn()

    def close(self) -> None:
        """Break the connection."""
        with suppress(ValueError, RuntimeError, OSError):  # it has ended by itself
            self._raw.shutdown()

    def _event(self, line: bytes) -> tuple[str, Any]:
        event: dict[str, Any] = _decoded(line) or {}
        kind = event.get("type", "")
        obj: dict[str, Any] = event.get("object") or {}
        if kind == "ERROR":  # comes in an answer of HTTP 200
            if obj.get("code") == _GONE:
                raise Expired
            raise PlatformError(f"{self._what}: {obj.get('message') or 'an error event'}")
        return kind, obj


def refused(answer: Answer, what: str) -> Rejected:
    """Rejection for a call that the server refused; nothing was changed."""
    message = answer.message or f"HTTP {answer.status}"
    if answer.status == 403:
        return Rejected("platform", f"{what} is forbidden: {message}; grant it as {answer.rights} does")
    if answer.status == 404:
        return Rejected("unknown_target", f"{what}: {message}; is it still there?")
    if answer.status == 409:
        return Rejected("conflict", f"{what}: {message}; decide again on what is there now")
    return Rejected("invalid", f"{what}: the API server refuses it: {message}; correct the object or its limits")


def _shown(path: str, query: tuple[tuple[str, str], ...]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _decoded(content: Any) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return None
