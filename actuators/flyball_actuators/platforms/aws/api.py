"""Calls AWS through its library: one attempt per call, each error mapped to its meaning for a decision."""

from importlib import import_module
from typing import Any

from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_actuators.platforms.calls import check_stop, described, record_call
from flyball_actuators.platforms.endpoint import trusted
from flyball_actuators.platforms.pools.errors import Throttled, retry_throttled
from flyball_contracts.config import PlatformConfig
from flyball_contracts.errors import ConfigError
from flyball_contracts.records.commands.outcomes import RefusalCode

POLICY = "infra/aws/actuator-policy.json"

_THROTTLED = (
    "Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "RequestThrottled",
    "TooManyRequestsException", "EC2ThrottledException",
)  # fmt: skip
_DENIED = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthorizationError")
_LOG_IN = (
    "AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "ExpiredToken", "ExpiredTokenException",
    "RequestExpired", "SignatureDoesNotMatch", "IncompleteSignature", "OptInRequired",
)  # fmt: skip
_BUSY = (
    "ScalingActivityInProgress", "ScalingActivityInProgressFault", "ResourceContention", "ResourceContentionFault",
    "ResourceInUseException", "IncorrectState", "IncorrectInstanceState",
)  # fmt: skip
_SERVER = (
    "InternalError", "InternalFailure", "ServiceUnavailable", "Unavailable", "ServerException",
    "ServiceUnavailableException", "InternalServiceError",
)  # fmt: skip
_ABSENT = ("InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity", "Unsupported")
_QUOTA = (
    "VcpuLimitExceeded", "InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "LimitExceeded",
    "ResourceLimitExceeded", "ResourceLimitExceededException", "ServiceQuotaExceededException", "MaxFleetCountExceeded",
)  # fmt: skip
_PRICE = ("SpotMaxPriceTooLow", "MaxSpotFleetRequestCountExceeded")
_ADDRESS = ("InsufficientFreeAddressesInSubnet", "InsufficientAddressCapacity", "InsufficientFreeAddresses")

_SERVICES = {
    "ec2": {"fleet", "auto_scaling_group"},
    "autoscaling": {"auto_scaling_group"},
    "eks": {"node_group"},
}


class Aws:
    """Calls one region with the library's default credentials; ``where`` names the entry in errors."""

    def __init__(self, entry: PlatformConfig, where: str) -> None:
        try:
            boto3, config = import_module("boto3"), import_module("botocore.config")
            self._errors: Any = import_module("botocore.exceptions")
        except ImportError as error:
            raise ConfigError(f"{where}.driver: aws needs pip install 'flyball[aws]'") from error
        url = entry.url
        if url:
            trusted(url, where, "https://ec2.eu-west-1.amazonaws.com")
        session: Any = boto3.Session(region_name=entry.region)
        if session.get_credentials() is None:
            raise ConfigError(
                f"{where}: AWS knows no credentials here; give the actuator a role, or what `aws sts "
                "get-caller-identity` works with"
            )
        settings = config.Config(  # retries are decided here, not in the library
            retries={"total_max_attempts": 1}, connect_timeout=entry.timeout_s, read_timeout=entry.timeout_s
        )
        kinds = {pool.kind for pool in entry.pools}
        self._clients: dict[str, Any] = {
            name: session.client(name, endpoint_url=url or None, config=settings)
            for name, users in _SERVICES.items()
            if kinds & users
        }

    def call(self, service: str, operation: str, known: tuple[str, ...] = (), **parameters: Any) -> Any:
        """Answer of one call, ``Rejected`` if AWS did nothing, or one of the error codes ``known`` to the caller.

        Throttled calls did nothing and are repeated. Raises :class:`PlatformError` if the effect is unknown.
        """
        name = f"{service}:{operation}"
        method = getattr(self._clients[service], operation)
        changes = not operation.startswith(("describe_", "list_")) and not parameters.get("DryRun")

        def once() -> Any:
            if changes:
                check_stop()
            answer = "no answer", ""
            try:
                done = method(**parameters)
                answer = _answer(done)
                return done
            except self._errors.ClientError as error:
                answer = _answer(error.response)
                code, message = str(error.response["Error"].get("Code", "")), f"{name}: {_message(error)}"
                if code in known:
                    return code
                if code in _THROTTLED:
                    raise Throttled(message) from error
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                if (status >= 500 or code in _SERVER) and not scarce(code):
                    raise PlatformError(f"{message}: HTTP {status}") from error
                return refused(code, message)
            except (self._errors.NoCredentialsError, self._errors.CredentialRetrievalError) as error:
                return refused("AuthFailure", f"{name}: {error}")
            except self._errors.ParamValidationError as error:
                return Rejected("invalid", f"{name}: {error}; correct the pool in actuator.platforms")
            except (self._errors.BotoCoreError, self._errors.HTTPClientError, OSError) as error:
                raise PlatformError(f"{name}: {error}") from error
            finally:
                if changes:
                    record_call(operation, f"{service} {described(parameters)}", *answer)

        return retry_throttled(once)

    def all(self, service: str, operation: str, key: str, **parameters: Any) -> list[Any] | Rejected:
        """All items of a paginated answer."""
        items: list[Any] = []
        while True:
            page = self.call(service, operation, **parameters)
            if isinstance(page, Rejected):
                return page
            items += page.get(key) or ()
            if not page.get("NextToken"):
                return items
            parameters["NextToken"] = page["NextToken"]


def scarce(code: str) -> bool:
    """Whether an error code means lack of capacity or quota."""
    return code in (*_ABSENT, *_QUOTA, *_PRICE, *_ADDRESS)


def remedy(code: str) -> str:
    """Remedy for lack of capacity."""
    if code in _QUOTA:
        return "raise the account's quota, or request fewer"
    if code in _PRICE:
        return "raise the maximum price, or use machines on demand"
    if code in _ADDRESS:
        return "widen the subnet, or name others in zones"
    return "name further zones, another instance type, or wait"


def refused(code: str, message: str) -> Rejected:
    """Rejection for an AWS error code, with the remedy."""
    if code in _DENIED:
        return Rejected("platform", f"{message}; grant what {POLICY} has")
    if code in _LOG_IN:
        return Rejected("platform", f"{message}; renew the credentials of the actuator's role")
    if scarce(code):
        return Rejected("platform", f"{message}; {remedy(code)}")
    if code in _BUSY:
        return Rejected("platform", f"{message}; decide again when what is under way there has ended")
    missing: RefusalCode = "unknown_target" if "NotFound" in code else "invalid"
    return Rejected(missing, f"{message}; correct the pool in actuator.platforms, or what it names on AWS")


def _answer(response: Any) -> tuple[str, str]:
    """Status of an answer, and AWS's id of the request."""
    metadata, code = response.get("ResponseMetadata", {}), response.get("Error", {}).get("Code", "")
    return f"{metadata.get('HTTPStatusCode', '')} {code}".strip(), str(metadata.get("RequestId", ""))


def _message(error: Any) -> str:
    found = error.response["Error"]
    request = error.response.get("ResponseMetadata", {}).get("RequestId", "")
    return f"{found.get('Code', '')}: {found.get('Message', '')}" + (f" (request id {request})" if request else "")
