"""Configuration of the grid and price feeds; secrets are read from the environment."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import Positive, Section

ZoneName = Annotated[str, msgspec.Meta(min_length=1)]


class FeedSettings(Section, frozen=True, kw_only=True, tag_field="source"):
    """Common settings of all feeds. ``zone`` is the zone of the nodes, whatever the provider's name for it."""

    zone: ZoneName


class FileFeedSettings(FeedSettings, frozen=True, kw_only=True, tag="file"):
    """A CSV or JSON file, or a folder whose newest file counts.

    ``scale`` converts the file's unit into the record's. A slot is as long as the smallest distance between the times.
    A file with slots that begin after its time of issue is published as a forecast, any other as measured.
    """

    path: Annotated[str, msgspec.Meta(min_length=1)]
    kind: Literal["carbon_intensity", "electricity_price", "spot_price", "spot_risk"] = "carbon_intensity"
    scale: Positive = 1.0


class UkCarbonSettings(FeedSettings, frozen=True, kw_only=True, tag="uk_carbon"):
    """The UK Carbon Intensity API: 48 h of Great Britain, half-hourly; free, no account."""

    zone: ZoneName = "GB"


class ElectricityMapsSettings(FeedSettings, frozen=True, kw_only=True, tag="electricity_maps"):
    """Electricity Maps; ``region`` is its name for the zone, empty: the same.

    ``endpoint`` is ``forecast`` (a paid plan) or ``latest``, the present hour only.
    """

    region: str = ""
    endpoint: Literal["forecast", "latest"] = "forecast"


class WattTimeSettings(FeedSettings, frozen=True, kw_only=True, tag="watttime"):
    """WattTime: marginal emissions; ``region`` is its name for the zone, empty: the same."""

    region: str = ""


class SpotSettings(FeedSettings, frozen=True, kw_only=True):
    """Common settings of all spot feeds: the cloud's region and machine type; ``zone`` is that of such nodes."""

    region: Annotated[
        str, msgspec.Meta(pattern=r"^[a-z0-9-]+$", description="the cloud's name of a region, e.g. us-east-2")
    ]
    instance_type: Annotated[
        str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]+$", description="the cloud's name of a type, e.g. p5.48xlarge")
    ]


class AwsSpotPriceSettings(SpotSettings, frozen=True, kw_only=True, tag="aws_spot_price"):
    """AWS: the current spot price with Linux; without ``availability_zone`` the lowest of the region's.

    The key is read from the environment, as AWS's own tools do; if there is none, the key of the instance's role is
    used.
    """

    availability_zone: Annotated[
        str, msgspec.Meta(pattern=r"^[a-z0-9-]*$", description="a name like us-east-2b, or nothing")
    ] = ""


class AwsSpotAdvisorSettings(SpotSettings, frozen=True, kw_only=True, tag="aws_spot_advisor"):
    """AWS: how often spot machines of a type were interrupted in the last month; free, no account."""


class AzureSpotPriceSettings(SpotSettings, frozen=True, kw_only=True, tag="azure_spot_price"):
    """Azure: the retail price of spot machines, of Linux; free, no account."""


class GcpSpotPriceSettings(SpotSettings, frozen=True, kw_only=True, tag="gcp_spot_price"):
    """Google Cloud: the spot price of a machine, as the sum of its parts; the key is an API key.

    ``parts`` gives the hourly amount of each row of the catalogue, by its description up to ``attached to`` or
    ``running in``; empty: those of a known type. Prices change at most once a month.
    """

    parts: Mapping[str, Positive] = {}


AnyFeed = (
    FileFeedSettings
    | UkCarbonSettings
    | ElectricityMapsSettings
    | WattTimeSettings
    | AwsSpotPriceSettings
    | AwsSpotAdvisorSettings
    | AzureSpotPriceSettings
    | GcpSpotPriceSettings
)
"""One feed; its key ``source`` selects the kind."""
