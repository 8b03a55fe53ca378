"""Configuration of the cloud's instance metadata service."""

from typing import Literal

from flyball_contracts.config.base import Section


class CloudConfig(Section, frozen=True, kw_only=True):
    """Where the agent asks what machine it runs on, and whether the cloud wants it back.

    ``auto`` looks at the firmware's names (DMI) and asks nothing where they are of no cloud.
    """

    provider: Literal["auto", "none", "aws", "gcp", "azure"] = "auto"
