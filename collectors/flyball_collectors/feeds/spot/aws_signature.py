"""Signs requests to AWS: signature version 4 of a GET without a body.

See "Create a signed AWS API request" in AWS's IAM user guide. This implements only what one GET needs: botocore takes
30 MB and requires an older python-dateutil than the one pinned here; the small libraries sign for other HTTP clients.
The test vectors of AWS, and botocore if it is installed, verify it.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from flyball_contracts.ids import NS_PER_S

_ALGORITHM = "AWS4-HMAC-SHA256"
_NO_BODY = hashlib.sha256(b"").hexdigest()


class AwsKey(NamedTuple):
    """An access key; ``session_token`` is empty for a permanent one."""

    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        """Text without the secrets."""
        return f"AwsKey({self.access_key!r})"


class Target(NamedTuple):
    """Destination of a request: the host as in its header, the region and the service."""

    host: str
    region: str
    service: str


def signed_headers(key: AwsKey, target: Target, path: str, query: Mapping[str, str], now_ns: int) -> dict[str, str]:
    """Headers of a signed GET; it must be sent within five minutes of ``now_ns``."""
    now = datetime.fromtimestamp(now_ns // NS_PER_S, UTC)
    stamp, day = f"{now:%Y%m%dT%H%M%SZ}", f"{now:%Y%m%d}"
    headers = {"host": target.host, "x-amz-date": stamp}
    if key.session_token:
        headers["x-amz-security-token"] = key.session_token
    names = ";".join(sorted(headers))
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
    request = "\n".join(
        [
            "GET",
            quote(path, safe="/-_.~"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{headers[name].strip()}" for name in sorted(headers)),
            "",
            names,
            _NO_BODY,
        ]
    )
    scope = f"{day}/{target.region}/{target.service}/aws4_request"
    text = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    secret = f"AWS4{key.secret_key}".encode()
    for part in (day, target.region, target.service, "aws4_request", text):
        secret = hmac.digest(secret, part.encode(), "sha256")
    del headers["host"]  # the HTTP client writes it
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={key.access_key}/{scope}, SignedHeaders={names}, Signature={secret.hex()}"
    )
    return headers
