"""Parameters of the feeds: their configuration, and constants that only tests vary.

``period_s`` is how often a provider is queried. After ``stale_after_s`` without a newer curve the feed is reported as
stale; ``None``: never. Both depend on how often the provider publishes.
"""

from collections.abc import Mapping
from typing import get_args

from flyball_contracts.config import (
    AnyFeed,
    AwsSpotAdvisorSettings,
    AwsSpotPriceSettings,
    AzureSpotPriceSettings,
    ElectricityMapsSettings,
    FileFeedSettings,
    GcpSpotPriceSettings,
    UkCarbonSettings,
    WattTimeSettings,
)
from flyball_contracts.config.constants import with_constants

OFTEN_S = 300.0
STALE_AFTER_S = 10_800.0


class FileFeedParameters(FileFeedSettings, frozen=True, kw_only=True):
    """A file; ``step_s`` is the length of a slot, ``None``: the smallest distance of the times."""

    period_s: float = 60.0
    stale_after_s: float | None = None
    step_s: float | None = None


class UkCarbonParameters(UkCarbonSettings, frozen=True, kw_only=True):
    """The UK Carbon Intensity API."""

    period_s: float = OFTEN_S
    stale_after_s: float | None = STALE_AFTER_S
    base_url: str = "https://api.carbonintensity.org.uk"


class ElectricityMapsParameters(ElectricityMapsSettings, frozen=True, kw_only=True):
    """Electricity Maps."""

    period_s: float = OFTEN_S
    stale_after_s: float | None = STALE_AFTER_S
    horizon_hours: int = 72
    token_env: str = "ELECTRICITYMAPS_TOKEN"
    base_url: str = "https://api.electricitymaps.com"


class WattTimeParameters(WattTimeSettings, frozen=True, kw_only=True):
    """WattTime."""

    period_s: float = OFTEN_S
    stale_after_s: float | None = STALE_AFTER_S
    horizon_hours: int = 24
    username_env: str = "WATTTIME_USER"
    password_env: str = "WATTTIME_PASSWORD"
    base_url: str = "https://api.watttime.org"


class AwsSpotPriceParameters(AwsSpotPriceSettings, frozen=True, kw_only=True):
    """AWS's spot prices; an empty ``base_url`` is that of the region. The variables are those of AWS's own tools."""

    period_s: float = OFTEN_S
    stale_after_s: float | None = STALE_AFTER_S
    access_key_env: str = "AWS_ACCESS_KEY_ID"
    secret_key_env: str = "AWS_SECRET_ACCESS_KEY"
    session_token_env: str = "AWS_SESSION_TOKEN"
    metadata_url: str = "http://169.254.169.254"
    base_url: str = ""


class AwsSpotAdvisorParameters(AwsSpotAdvisorSettings, frozen=True, kw_only=True):
    """AWS's spot advisor."""

    period_s: float = 3_600.0
    stale_after_s: float | None = STALE_AFTER_S
    base_url: str = "https://spot-bid-advisor.s3.amazonaws.com"


class AzureSpotPriceParameters(AzureSpotPriceSettings, frozen=True, kw_only=True):
    """Azure's retail prices."""

    period_s: float = 3_600.0
    stale_after_s: float | None = STALE_AFTER_S
    base_url: str = "https://prices.azure.com"


class GcpSpotPriceParameters(GcpSpotPriceSettings, frozen=True, kw_only=True):
    """Google Cloud's catalogue, whose prices change at most once a month."""

    period_s: float = 21_600.0
    stale_after_s: float | None = 86_400.0
    key_env: str = "GCP_API_KEY"
    base_url: str = "https://cloudbilling.googleapis.com"


Paced = (
    FileFeedParameters
    | UkCarbonParameters
    | ElectricityMapsParameters
    | WattTimeParameters
    | AwsSpotPriceParameters
    | AwsSpotAdvisorParameters
    | AzureSpotPriceParameters
    | GcpSpotPriceParameters
)
"""The parameters of any feed."""
_KINDS: Mapping[type[AnyFeed], type[Paced]] = {kind.__bases__[0]: kind for kind in get_args(Paced)}


def paced(settings: AnyFeed) -> Paced:
    """Return ``settings`` with their constants; unchanged if they have them."""
    return settings if isinstance(settings, Paced) else with_constants(_KINDS[type(settings)], settings)
