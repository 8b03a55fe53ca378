"""Configuration of the cloud's instance metadata service."""

from typing import Annotated, Literal

import msgspec

from flyball_contracts.config.base import SERVER, Positive, Section


class CloudConfig(Section, frozen=True, kw_only=True):
    """Where the agent asks what machine it runs on, and whether the cloud wants it back.

    ``auto`` looks at the firmware's names (DMI) and asks nothing where they are of no cloud. ``address`` replaces
    the cloud's own, empty: that. Notices are asked for every ``period_s``, and each answer is waited for ``timeout_s``.
    """

    provider: Literal["auto", "none", "aws", "gcp", "azure"] = "auto"
    address: Annotated[str, msgspec.Meta(pattern=r"^(https?://[^/@?#\s]+)?$", description=SERVER)] = ""
    period_s: Positive = 5.0
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
