"""Calls Compute Engine through its library: one attempt per call, each error mapped to its meaning for a decision."""

from importlib import import_module
from typing import Any

from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.calls import check_stop, described, record_call
from flyball_actuators.platforms.endpoint import trusted
from flyball_actuators.platforms.pools.errors import Remedies, Throttled, rejected, retry_throttled
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError

PUBLIC = "https://compute.googleapis.com"
_REMEDIES = Remedies(
    log_in="renew the credentials of the actuator's service account",
    right="grant the service account the role of infra/gcp/actuator-role.yaml",
    request="correct the pool in actuator.platforms, or the group",
)
_SCARCE = ("ZONE_RESOURCE_POOL_EXHAUSTED", "RESOURCE_POOL_EXHAUSTED", "RESOURCE_NOT_READY", "STOCKOUT")
_QUOTA = ("QUOTA_EXCEEDED", "quotaExceeded", "LIMIT_EXCEEDED")


class Gcp:
    """Calls one project with the library's default credentials; ``where`` names the entry in errors."""

    def __init__(self, entry: PlatformConfig, where: str) -> None:
        try:
            compute: Any = import_module("google.cloud.compute_v1")
            auth: Any = import_module("google.auth")
            self._errors: Any = import_module("google.api_core.exceptions")
            self._auth_error: Any = import_module("google.auth.exceptions").GoogleAuthError
        except ImportError as error:
            raise ConfigError(f"{where}.driver: gcp needs pip install 'flyball[gcp]'") from error
        url = entry.url
        if url and trusted(url, where, PUBLIC).scheme == "http":  # on this machine: it takes no credentials
            credentials: Any = import_module("google.auth.credentials").AnonymousCredentials()
        else:
            try:
                credentials, _ = auth.default(scopes=["https://www.googleapis.com/auth/compute"])
            except self._auth_error as error:
                raise ConfigError(
                    f"{where}: Google Cloud knows no credentials here ({error}); give the actuator a service account, "
                    "or what `gcloud auth application-default print-access-token` works with"
                ) from error
        options = {"api_endpoint": url} if url else None
        made = {"credentials": credentials, "client_options": options, "transport": "rest"}
        self._clients: dict[str, Any] = {
            "groups": compute.InstanceGroupManagersClient(**made),
            "requests": compute.InstanceGroupManagerResizeRequestsClient(**made),
            "operations": compute.ZoneOperationsClient(**made),
        }
        self.project, self._timeout_s = entry.account, entry.timeout_s

    def call(self, client: str, method: str, zone: str, **request: Any) -> Any:
        """Answer of one call, or ``Rejected`` if nothing was done.

        Throttled calls did nothing and are repeated. Raises :class:`PlatformError` if the effect is unknown.
        """
        name = f"compute {client}.{method}"
        parameters = {"project": self.project, "zone": zone, **request}

        changes = not method.startswith(("get", "list"))

        def once() -> Any:
            if changes:
                check_stop()
            status, request_id = "no answer", ""
            try:
                answer = getattr(self._clients[client], method)(request=parameters, retry=None, timeout=self._timeout_s)
                status, request_id = "done", str(getattr(answer, "name", ""))  # of Compute Engine's operation
                return list(answer) if method.startswith("list") else answer
            except self._errors.GoogleAPICallError as error:
                status = f"{int(error.code or 0)} {error.message}"
                message = f"{name}: {error.message}"
                if "rateLimitExceeded" in str(error):
                    raise Throttled(message) from error
                return rejected(int(error.code or 0), message, remedy(message), _REMEDIES)
            except self._auth_error as error:
                return Rejected("platform", f"{name}: {error}; {_REMEDIES.log_in}")
            except (self._errors.GoogleAPIError, OSError, ValueError) as error:
                raise PlatformError(f"{name}: {type(error).__name__}: {error}") from error
            finally:
                if changes:
                    record_call(method, f"{client} {described(parameters)}", status, request_id)

        return retry_throttled(once)


def remedy(message: str) -> str:
    """Remedy if a message reports lack of capacity; empty otherwise."""
    if any(code in message for code in _QUOTA):
        return "raise the project's quota, or request fewer"
    if any(code in message for code in _SCARCE):
        return "use a pool of another zone or machine type, or wait"
    return ""
