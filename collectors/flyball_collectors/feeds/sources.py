"""Which feeds there are, by the configuration."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from flyball_collectors.feeds.aws_keys import FixedKey, Keys, RoleKeys
from flyball_collectors.feeds.aws_signature import AwsKey
from flyball_collectors.feeds.aws_spot_advisor import AwsSpotAdvisor
from flyball_collectors.feeds.aws_spot_price import AwsSpotPrice
from flyball_collectors.feeds.azure_spot_price import AzureSpotPrice
from flyball_collectors.feeds.base import Feed
from flyball_collectors.feeds.client import Client
from flyball_collectors.feeds.electricity_maps import ElectricityMaps
from flyball_collectors.feeds.file import FileFeed
from flyball_collectors.feeds.gcp_catalogue import Catalogue
from flyball_collectors.feeds.gcp_spot_price import GcpSpotPrice
from flyball_collectors.feeds.parameters import FeedsParameters, Paced
from flyball_collectors.feeds.uk_carbon import UkCarbon
from flyball_collectors.feeds.watttime import WattTime
from flyball_contracts.config import FeedsConfig
from flyball_contracts.config.constants import with_constants
from flyball_contracts.errors import ConfigError
from flyball_contracts.secret import secret


class Source(NamedTuple):
    """A feed with its pace."""

    feed: Feed
    period_s: float
    stale_after_s: float | None


def open_feeds(section: FeedsConfig, environ: Mapping[str, str] | None = None) -> list[Source]:
    """Feeds of a configuration, in its order.

    Raises :class:`ConfigError` when there is none, a secret is not in ``environ``, or two feeds say the same
    kind of curve for one zone: the worker knows one, and average and marginal carbon must not be mixed.
    """
    config = with_constants(FeedsParameters, section)
    environ = os.environ if environ is None else environ
    found: list[Source] = []
    taken: dict[tuple[str, str], str] = {}

    def add(feed: Feed, settings: Paced, key: str, kind: str = "carbon_intensity") -> None:
        other = taken.setdefault((settings.zone, kind), key)
        if other != key:
            raise ConfigError(f"{key}: zone {settings.zone!r} has its {kind} from {other} already; remove one of them")
        found.append(Source(feed, settings.period_s, settings.stale_after_s))

    def client(base_url: str) -> Client:
        return Client(base_url, config.timeout_s)

    for i, file in enumerate(config.file):
        add(FileFeed(file), file, f"feeds.file[{i}]", file.kind)
    for i, uk in enumerate(config.uk_carbon):
        add(UkCarbon(uk, client(uk.base_url)), uk, f"feeds.uk_carbon[{i}]")
    for i, maps in enumerate(config.electricity_maps):
        key = f"feeds.electricity_maps[{i}]"
        token = secret(environ, maps.token_env, key, in_header=True)
        add(ElectricityMaps(maps, client(maps.base_url), token), maps, key)
    for i, watt in enumerate(config.watttime):
        key = f"feeds.watttime[{i}]"
        username = secret(environ, watt.username_env, key)
        password = secret(environ, watt.password_env, key)
        add(WattTime(watt, client(watt.base_url), username, password), watt, key)
    for i, price in enumerate(config.aws_spot_price):
        key = f"feeds.aws_spot_price[{i}]"
        if price.key_from == "instance":
            keys: Keys = RoleKeys(price.metadata_url)
        else:
            keys = FixedKey(
                AwsKey(
                    secret(environ, price.access_key_env, key, in_header=True),
                    secret(environ, price.secret_key_env, key),
                    environ.get(price.session_token_env, "").strip(),
                )
            )
        base_url = price.base_url or f"https://ec2.{price.region}.amazonaws.com"
        add(AwsSpotPrice(price, client(base_url), keys), price, key, "spot_price")
    for i, advice in enumerate(config.aws_spot_advisor):
        add(AwsSpotAdvisor(advice, client(advice.base_url)), advice, f"feeds.aws_spot_advisor[{i}]", "spot_risk")
    for i, retail in enumerate(config.azure_spot_price):
        add(AzureSpotPrice(retail, client(retail.base_url)), retail, f"feeds.azure_spot_price[{i}]", "spot_price")
    catalogues: dict[tuple[str, str], Catalogue] = {}
    for i, parts in enumerate(config.gcp_spot_price):
        key = f"feeds.gcp_spot_price[{i}]"
        api_key = secret(environ, parts.key_env, key, in_header=True)
        shared = (parts.base_url, api_key)
        if shared not in catalogues:  # half a period: feeds of one period come one after the other
            catalogues[shared] = Catalogue(client(parts.base_url), api_key, parts.period_s / 2)
        add(GcpSpotPrice(parts, catalogues[shared], key), parts, key, "spot_price")
    if not found:
        raise ConfigError("feeds: none is configured; `flyball config example` shows them all")
    return found
