"""Source of an AWS access key: the environment, or the role of the machine that the feed runs on."""

from collections.abc import Callable

import msgspec

from flyball_collectors.cloud.aws import DATA, Aws
from flyball_collectors.cloud.base import MetadataError
from flyball_collectors.cloud.http import MetadataServer
from flyball_collectors.feeds.answers import time_ns
from flyball_collectors.feeds.base import FeedError
from flyball_collectors.feeds.spot.aws_signature import AwsKey
from flyball_contracts.ids import NS_PER_S

_ROLE = f"{DATA}iam/security-credentials/"
_SPARE_NS = 300 * NS_PER_S
_REMEDY = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role"


Keys = Callable[[int], AwsKey]
"""Returns the key to sign with at a wall time in nanoseconds; raises :class:`FeedError`."""


class _Credentials(msgspec.Struct, rename="pascal"):
    access_key_id: str
    secret_access_key: str
    token: str
    expiration: str


class RoleKeys:
    """Keys of the instance's role, by its metadata service; a new one five minutes before the old one ends."""

    def __init__(self, metadata_url: str) -> None:
        self._server = MetadataServer(metadata_url)
        self._aws = Aws(self._server)
        self._key = AwsKey("", "")
        self._ends_ns = 0

    def key(self, now_ns: int) -> AwsKey:
        """Key of the role, requested on demand."""
        if now_ns < self._ends_ns - _SPARE_NS:
            return self._key
        where = f"{self._server.address}{_ROLE}"
        try:
            role = self._server.text(self._aws.request(_ROLE), _ROLE)
            if not role:
                raise FeedError(f"{where}: the instance has no role; {_REMEDY}")
            path = f"{_ROLE}{role}"
            found = self._server.decode(self._aws.request(path), path, _Credentials)
        except MetadataError as error:
            raise FeedError(f"{error}; {_REMEDY}") from error
        self._key = AwsKey(found.access_key_id, found.secret_access_key, found.token)
        self._ends_ns = time_ns(found.expiration, f"{where}: $.Expiration")
        return self._key
