"""Calls Azure through its library: one attempt per call, each error mapped to its meaning for a decision."""

from collections.abc import Callable
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.calls import check_stop, described, record_call
from flyball_actuators.platforms.endpoint import trusted
from flyball_actuators.platforms.pools.errors import Remedies, rejected, retry_throttled
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError

PUBLIC = "https://management.azure.com"
_REMEDIES = Remedies(
    log_in="renew the credentials of its identity",
    right="grant the identity the role of infra/azure/actuator-role.json",
    request="correct the pool in actuator.platforms, or the scale set",
)
_SCARCE = ("AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest", "SkuNotAvailable")
_QUOTA = ("QuotaExceeded", "OperationNotAllowed", "exceeding approved")


class Azure:
    """Calls one subscription with the library's default credentials; ``where`` names the entry in errors."""

    def __init__(self, entry: PlatformConfig, where: str) -> None:
        try:
            compute: Any = import_module("azure.mgmt.compute")
            identity: Any = import_module("azure.identity")
            self._errors: Any = import_module("azure.core.exceptions")
            self._request: Any = import_module("azure.core.rest").HttpRequest
            policies: Any = import_module("azure.core.pipeline.policies")
            self.unchanged: Any = import_module("azure.core").MatchConditions.IfNotModified
        except ImportError as error:
            raise ConfigError(f"{where}.driver: azure needs pip install 'flyball[azure]'") from error
        self._url = entry.url or PUBLIC
        plain = trusted(self._url, where, PUBLIC).scheme == "http"  # on this machine only, without credentials
        more: dict[str, Any] = {"authentication_policy": policies.SansIOHTTPPolicy()} if plain else {}
        self._client: Any = compute.ComputeManagementClient(
            identity.DefaultAzureCredential(),
            entry.account,
            base_url=self._url,
            retry_total=0,  # retries are decided here, not in the library
            connection_timeout=entry.timeout_s,
            read_timeout=entry.timeout_s,
            **more,
        )

    def sets(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of scale sets: the answer, or ``Rejected`` if nothing was done; see :meth:`_call`."""
        return self._call(method, lambda: getattr(self._client.virtual_machine_scale_sets, method)(*arguments, **named))

    def machines(self, group: str, name: str) -> Any:
        """Machines of a scale set, or ``Rejected``."""
        listed = self._client.virtual_machine_scale_set_vms.list
        return self._call("list", lambda: list(listed(group, name, expand="instanceView")))

    def begin(self, method: str, *arguments: Any, **named: Any) -> str | Rejected:
        """Start a long-running operation; return the path of its status, empty if it has none."""
        paths: list[str] = []
        ids: list[str] = []

        def hook(response: Any) -> None:
            headers = response.http_response.headers
            ids.append(headers.get("x-ms-request-id") or "")
            parts = urlsplit(headers.get("Azure-AsyncOperation") or "")
            paths.append(f"{parts.path}?{parts.query}" if parts.path else "")

        function = getattr(self._client.virtual_machine_scale_sets, method)

        def call() -> Any:
            check_stop()
            status = "no answer"
            try:
                begun = function(*arguments, polling=False, raw_response_hook=hook, **named)
                status = "begun"
                return begun
            except self._errors.HttpResponseError as error:
                status = str(error.status_code)
                raise
            finally:
                record_call(method, described({"set": arguments}), status, ids[-1] if ids else "")

        begun = self._call(method, call)
        return begun if isinstance(begun, Rejected) else (paths[0] if paths else "")

    def followed(self, path: str) -> dict[str, Any] | Rejected:
        """Status of an operation. Takes only a path, so that credentials are sent to no other host."""

        def call() -> Any:
            response = self._client.send_request(self._request("GET", f"{self._url}{path}"))
            response.raise_for_status()
            return response.json()

        answer: dict[str, Any] | Rejected = self._call("operation", call)
        return answer

    def _call(self, name: str, call: Callable[[], Any]) -> Any:
        """Make one call. Throttled calls did nothing and are repeated.

        Raises :class:`PlatformError` if the effect is unknown.
        """

        def once() -> Any:
            try:
                return call()
            except self._errors.ClientAuthenticationError as error:
                return Rejected("platform", f"{name}: {error.message}; {_REMEDIES.log_in}")
            except self._errors.HttpResponseError as error:
                message = f"{name}: {_message(error)}"
                return rejected(int(error.status_code or 0), message, remedy(message), _REMEDIES)
            except (self._errors.AzureError, OSError) as error:
                raise PlatformError(f"{name}: {error}") from error

        return retry_throttled(once)


def remedy(message: str) -> str:
    """Remedy if a message reports lack of capacity; empty otherwise."""
    if any(code in message for code in _SCARCE):
        return "use a pool of another zone, region or size, or wait"
    return "raise the subscription's quota, or request fewer" if any(code in message for code in _QUOTA) else ""


def _message(error: Any) -> str:
    inner = error.error
    return f"{inner.code}: {inner.message}" if inner is not None and inner.code else str(error.message)
