"""Opens the configured feeds."""

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flyball_collectors.feeds import parameters
from flyball_collectors.feeds.base import Feed
from flyball_collectors.feeds.client import Client
from flyball_collectors.feeds.file import FileFeed
from flyball_collectors.feeds.grid.electricity_maps import ElectricityMaps
from flyball_collectors.feeds.grid.uk_carbon import UkCarbon
from flyball_collectors.feeds.grid.watttime import WattTime
from flyball_collectors.feeds.spot.aws_keys import Keys, RoleKeys
from flyball_collectors.feeds.spot.aws_signature import AwsKey
from flyball_collectors.feeds.spot.aws_spot_advisor import AwsSpotAdvisor
from flyball_collectors.feeds.spot.aws_spot_price import AwsSpotPrice
from flyball_collectors.feeds.spot.azure_spot_price import AzureSpotPrice
from flyball_collectors.feeds.spot.gcp_catalogue import Catalogue
from flyball_collectors.feeds.spot.gcp_spot_price import GcpSpotPrice
from flyball_contracts.config import AnyFeed
from flyball_contracts.errors import ConfigError
from flyball_contracts.security.secret import secret, secret_if_given

TIMEOUT_S = 10.0
"""Providers respond in a second or two, or not at all."""


class Source(NamedTuple):
    """A feed with its polling period."""

    feed: Feed
    period_s: float
    stale_after_s: float | None


def open_feeds(
    feeds: Iterable[AnyFeed], environ: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> list[Source]:
    """Feeds of a configuration, in its order.

    ``timeout_s`` bounds the wait for a response, and separately its transfer. Raises :class:`ConfigError` when there is
    no feed, a secret is not in ``environ``, or two feeds have the same kind of curve for one zone: the worker keeps
    one, and average and marginal carbon must not be mixed.
    """
    environ = os.environ if environ is None else environ
    catalogues: dict[tuple[str, str], Catalogue] = {}
    found: list[Source] = []
    taken: dict[tuple[str, str], str] = {}
    for place, settings in enumerate(map(parameters.paced, feeds)):
        key = f"feeds[{place}]"
        feed, kind = _open(settings, key, environ, timeout_s, catalogues)
        other = taken.setdefault((settings.zone, kind), key)
        if other != key:
            raise ConfigError(f"{key}: zone {settings.zone!r} has its {kind} from {other} already; remove one of them")
        found.append(Source(feed, settings.period_s, settings.stale_after_s))
    if not found:
        raise ConfigError("feeds: none is configured; `flyball config example` shows them all")
    return found


def _open(
    one: parameters.Paced,
    key: str,
    environ: Mapping[str, str],
    timeout_s: float,
    catalogues: dict[tuple[str, str], Catalogue],
) -> tuple[Feed, str]:
    """A feed, and the kind of its curves."""
    if isinstance(one, parameters.FileFeedParameters):
        return FileFeed(one), one.kind
    if isinstance(one, parameters.AwsSpotPriceParameters):
        base_url = one.base_url or f"https://ec2.{one.region}.amazonaws.com"
        return AwsSpotPrice(one, Client(base_url, timeout_s), _aws_keys(one, key, environ)), "spot_price"
    client = Client(one.base_url, timeout_s)
    match one:
        case parameters.UkCarbonParameters():
            return UkCarbon(one, client), "carbon_intensity"
        case parameters.ElectricityMapsParameters():
            token = secret(environ, one.token_env, key, in_header=True)
            return ElectricityMaps(one, client, token), "carbon_intensity"
        case parameters.WattTimeParameters():
            username, password = (secret(environ, name, key) for name in (one.username_env, one.password_env))
            return WattTime(one, client, username, password), "carbon_intensity"
        case parameters.AwsSpotAdvisorParameters():
            return AwsSpotAdvisor(one, client), "spot_risk"
        case parameters.AzureSpotPriceParameters():
            return AzureSpotPrice(one, client), "spot_price"
        case parameters.GcpSpotPriceParameters():
            api_key = secret(environ, one.key_env, key, in_header=True)
            shared = (one.base_url, api_key)
            if shared not in catalogues:  # half a period: feeds of one period come one after the other
                catalogues[shared] = Catalogue(client, api_key, one.period_s / 2)
            return GcpSpotPrice(one, catalogues[shared], key), "spot_price"


def _aws_keys(one: parameters.AwsSpotPriceParameters, key: str, environ: Mapping[str, str]) -> Keys:
    """The key in the environment, else that of the machine's role, in the order of AWS's own tools."""
    if not any(secret_if_given(environ, name, key) for name in (one.access_key_env, one.secret_key_env)):
        return RoleKeys(one.metadata_url).key
    fixed = AwsKey(
        secret(environ, one.access_key_env, key, in_header=True),
        secret(environ, one.secret_key_env, key),
        secret_if_given(environ, one.session_token_env, key),
    )
    return lambda now_ns: fixed
