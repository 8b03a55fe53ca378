"""Configuration of the grid and price feeds; secrets are read from the environment variables named."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import SERVER, VARIABLE, Positive, Section

ZoneName = Annotated[str, msgspec.Meta(min_length=1)]
BaseUrl = Annotated[str, msgspec.Meta(pattern=r"^https?://[^/@?#\s]+(/[^?#@\s]*)?$", description=SERVER)]
Variable = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description=VARIABLE)]
Horizon = Annotated[int, msgspec.Meta(ge=1, le=72)]


class FeedSettings(Section, frozen=True, kw_only=True):
    """What all feeds have.

    ``zone`` is the zone of the nodes, whatever the provider calls it. After ``stale_after_s`` without a newer
    curve the feed is reported as stale; ``None``: never.
    """

    zone: ZoneName
    period_s: Positive = 300.0
    stale_after_s: Positive | None = 10_800.0


class FileFeedSettings(FeedSettings, frozen=True, kw_only=True):
    """A CSV or JSON file, or a folder whose newest one counts.

    ``scale`` turns the file's unit into the record's. ``step_s`` is the length of a slot; ``None``: the smallest
    distance of the times.
    """

    path: Annotated[str, msgspec.Meta(min_length=1)]
    kind: Literal["carbon_intensity", "electricity_price", "spot_price", "spot_risk"] = "carbon_intensity"
    period_s: Positive = 60.0
    stale_after_s: Positive | None = None
    scale: Positive = 1.0
    step_s: Positive | None = None
    forecast: bool = True
    average: bool = True
    lifecycle: bool = True


class UkCarbonSettings(FeedSettings, frozen=True, kw_only=True):
    """The UK Carbon Intensity API: 48 h of Great Britain, half-hourly; free, no account."""

    zone: ZoneName = "GB"
    base_url: BaseUrl = "https://api.carbonintensity.org.uk"


class ElectricityMapsSettings(FeedSettings, frozen=True, kw_only=True):
    """Electricity Maps; ``region`` is its name for the zone, empty: the same.

    ``endpoint`` is ``forecast`` (a paid plan) or ``latest``, the present hour only.
    """

    region: str = ""
    endpoint: Literal["forecast", "latest"] = "forecast"
    horizon_hours: Literal[6, 24, 48, 72] = 72
    token_env: Variable = "ELECTRICITYMAPS_TOKEN"
    base_url: BaseUrl = "https://api.electricitymaps.com"


class WattTimeSettings(FeedSettings, frozen=True, kw_only=True):
    """WattTime: marginal emissions; ``region`` is its name for the zone, empty: the same."""

    region: str = ""
    horizon_hours: Horizon = 24
    username_env: Variable = "WATTTIME_USER"
    password_env: Variable = "WATTTIME_PASSWORD"
    base_url: BaseUrl = "https://api.watttime.org"


class SpotSettings(FeedSettings, frozen=True, kw_only=True):
    """What all spot feeds have: the cloud's region and type of machine; ``zone`` is that of the nodes of the kind."""

    region: Annotated[
        str, msgspec.Meta(pattern=r"^[a-z0-9-]+$", description="the cloud's name of a region, e.g. us-east-2")
    ]
    instance_type: Annotated[
        str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]+$", description="the cloud's name of a type, e.g. p5.48xlarge")
    ]


class AwsSpotPriceSettings(SpotSettings, frozen=True, kw_only=True):
    """AWS: the spot price in force, of Linux; without ``availability_zone`` the lowest of the region's.

    The key is read from the environment, or is that of the instance's role, whose metadata are at ``metadata_url``.
    """

    availability_zone: Annotated[
        str, msgspec.Meta(pattern=r"^[a-z0-9-]*$", description="a name like us-east-2b, or nothing")
    ] = ""
    access_key_env: Variable = "AWS_ACCESS_KEY_ID"
    secret_key_env: Variable = "AWS_SECRET_ACCESS_KEY"
    session_token_env: Variable = "AWS_SESSION_TOKEN"
    key_from: Literal["environment", "instance"] = "environment"
    metadata_url: BaseUrl = "http://169.254.169.254"
    base_url: Annotated[str, msgspec.Meta(pattern=r"^(https?://[^/@?#\s]+)?$", description=SERVER)] = ""


class AwsSpotAdvisorSettings(SpotSettings, frozen=True, kw_only=True):
    """AWS: how often spot machines of a type were taken back in the last month; free, no account."""

    period_s: Positive = 3_600.0
    base_url: BaseUrl = "https://spot-bid-advisor.s3.amazonaws.com"


class AzureSpotPriceSettings(SpotSettings, frozen=True, kw_only=True):
    """Azure: the retail price of spot machines, of Linux; free, no account."""

    period_s: Positive = 3_600.0
    base_url: BaseUrl = "https://prices.azure.com"


class GcpSpotPriceSettings(SpotSettings, frozen=True, kw_only=True):
    """Google Cloud: the spot price of a machine, as the sum of its parts; the key is an API key.

    ``parts`` is how much an hour has of each row of the catalogue, by its description up to ``attached to`` or
    ``running in``; empty: those of a type that is known. Prices change at most once a month.
    """

    period_s: Positive = 21_600.0
    stale_after_s: Positive | None = 86_400.0
    parts: Mapping[str, Positive] = {}
    key_env: Variable = "GCP_API_KEY"
    base_url: BaseUrl = "https://cloudbilling.googleapis.com"


class FeedsConfig(Section, frozen=True, kw_only=True):
    """The grid and price feeds; one curve per zone and kind.

    ``timeout_s`` bounds the wait for an answer, and again its transfer. After the n-th failure in a row a feed
    waits a random time of at most ``retry_s * 2**n``, at most ``retry_cap_s``, and never less than the server
    asks for.
    """

    timeout_s: Positive = 10.0
    retry_s: Positive = 5.0
    retry_cap_s: Positive = 900.0
    file: tuple[FileFeedSettings, ...] = ()
    uk_carbon: tuple[UkCarbonSettings, ...] = ()
    electricity_maps: tuple[ElectricityMapsSettings, ...] = ()
    watttime: tuple[WattTimeSettings, ...] = ()
    aws_spot_price: tuple[AwsSpotPriceSettings, ...] = ()
    aws_spot_advisor: tuple[AwsSpotAdvisorSettings, ...] = ()
    azure_spot_price: tuple[AzureSpotPriceSettings, ...] = ()
    gcp_spot_price: tuple[GcpSpotPriceSettings, ...] = ()
