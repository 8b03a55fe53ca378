"""Compute Engine as its own library calls it: one try a call, and each error as what it means for a decision."""

import random
import time
from importlib import import_module
from typing import Any

from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.pools.endpoint import checked, local
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError

TRIES = 5
BACKOFF_S = (0.2, 3.0)
ROLE = "compute.instanceGroupManagers.get, .list, .update and compute.zoneOperations.get, .list"
_SCARCE = ("ZONE_RESOURCE_POOL_EXHAUSTED", "RESOURCE_POOL_EXHAUSTED", "RESOURCE_NOT_READY", "STOCKOUT")
_QUOTA = ("QUOTA_EXCEEDED", "quotaExceeded", "LIMIT_EXCEEDED")


class Gcp:
    """Calls one project with the credentials that the library finds; ``where`` names the entry in errors."""

    def __init__(self, entry: PlatformConfig, where: str) -> None:
        try:
            compute: Any = import_module("google.cloud.compute_v1")
            auth: Any = import_module("google.auth")
            self._errors: Any = import_module("google.api_core.exceptions")
            self._auth_error: Any = import_module("google.auth.exceptions").GoogleAuthError
        except ImportError as error:
            raise ConfigError(f"{where}.driver: gcp needs pip install 'flyball[gcp]'") from error
        url = checked(entry.url, where)
        if local(url):
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
        """The answer of one call, or ``Rejected`` where nothing was done.

        A call that was throttled did nothing, so it is made again. Raises :class:`PlatformError` where it is not known
        what became of it.
        """
        name = f"compute {client}.{method}"
        asked = {"project": self.project, "zone": zone, **request}
        for attempt in range(TRIES):
            try:
                answer = getattr(self._clients[client], method)(request=asked, retry=None, timeout=self._timeout_s)
                return list(answer) if method.startswith("list") else answer
            except self._errors.GoogleAPICallError as error:
                status, said = int(error.code or 0), f"{name}: {error.message}"
                if status == 429 or "rateLimitExceeded" in str(error):
                    if attempt + 1 < TRIES:
                        time.sleep(random.uniform(0, min(BACKOFF_S[1], BACKOFF_S[0] * 2**attempt)))
                        continue
                    raise PlatformError(f"{said}: throttled {TRIES} times") from error
                if status >= 500 or not status:
                    raise PlatformError(f"{said}: HTTP {status}") from error
                return _refused(status, said)
            except self._auth_error as error:
                return Rejected("platform", f"{name}: {error}; renew the credentials of the actuator's service account")
            except (self._errors.GoogleAPIError, OSError, ValueError) as error:
                raise PlatformError(f"{name}: {type(error).__name__}: {error}") from error
        raise AssertionError("unreachable")


def remedy(said: str) -> str:
    """What helps, where a message tells of a lack of capacity; empty where it does not."""
    if any(code in said for code in _QUOTA):
        return "raise the project's quota, or ask for fewer"
    if any(code in said for code in _SCARCE):
        return "use a pool of another zone or machine type, or wait"
    return ""


def _refused(status: int, said: str) -> Rejected:
    helps = remedy(said)
    if helps:
        return Rejected("platform", f"{said}; {helps}")
    if status == 401:
        return Rejected("platform", f"{said}; renew the credentials of the actuator's service account")
    if status == 403:
        return Rejected("platform", f"{said}; grant the service account {ROLE}")
    if status == 404:
        return Rejected("unknown_target", f"{said}; correct the pool in actuator.platforms")
    if status in (409, 412):
        return Rejected("conflict", f"{said}; decide again on what is there now")
    return Rejected("invalid", f"{said}; correct the pool in actuator.platforms, or the group")
