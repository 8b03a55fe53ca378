"""Detects the cloud of this machine by its firmware (DMI), which takes three small files."""

from pathlib import Path
from typing import Literal

from flyball_collectors.kernel import text_of

AZURE_TAG = "7783-7084-3265-9085-8269-3286-77"
"""The chassis' asset tag of every machine on Azure; the vendor's name is on any Hyper-V."""


def provider_of(root: Path = Path("/")) -> Literal["aws", "gcp", "azure", ""]:
    """The cloud, or ``""`` for any other machine."""
    dmi = root / "sys/class/dmi/id"
    vendor = text_of(dmi / "sys_vendor").strip()
    # Machines of AWS before Nitro run on Xen and say so only in the version of the firmware, e.g. 4.11.amazon.
    if vendor == "Amazon EC2" or text_of(dmi / "bios_version").strip().endswith("amazon"):
        return "aws"
    if vendor == "Google":
        return "gcp"
    if vendor == "Microsoft Corporation" and text_of(dmi / "chassis_asset_tag").strip() == AZURE_TAG:
        return "azure"
    return ""
