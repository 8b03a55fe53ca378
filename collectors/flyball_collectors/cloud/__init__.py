"""Instance metadata of AWS, Google Cloud and Azure: location and type of this machine, and notices of reclaims."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flyball_collectors.cloud.base import Cloud as Cloud, MetadataError as MetadataError
from flyball_collectors.cloud.collector import CloudCollector as CloudCollector
from flyball_collectors.cloud.detect import provider_of
from flyball_collectors.nvml import Absent
from flyball_collectors.parameters import CloudParameters

if TYPE_CHECKING:  # imported on a machine of that cloud: it costs memory
    from flyball_collectors.cloud.http import MetadataServer


def _aws(server: "MetadataServer") -> Cloud:
    from flyball_collectors.cloud.aws import Aws

    return Aws(server)


def _gcp(server: "MetadataServer") -> Cloud:
    from flyball_collectors.cloud.gcp import Gcp

    return Gcp(server)


def _azure(server: "MetadataServer") -> Cloud:
    from flyball_collectors.cloud.azure import Azure

    return Azure(server)


CLOUDS: Mapping[str, Callable[["MetadataServer"], Cloud]] = {"aws": _aws, "gcp": _gcp, "azure": _azure}


def open_cloud(
    name: str, node: str, root: Path = Path("/"), settings: CloudParameters | None = None
) -> CloudCollector | Absent:
    """Collector of the cloud ``name``, or why there is none; sends no request and never raises.

    If ``name`` is empty, the firmware determines it.
    """
    settings = settings or CloudParameters()
    provider = name or provider_of(root)
    if not provider:
        remedy = "nothing to do on a machine of your own; else set agent.provider"
        return Absent("the firmware names none of AWS, Google Cloud and Azure", remedy)
    if provider not in CLOUDS:
        return Absent(f"agent.provider is {provider}", "set it to aws, gcp or azure, or leave it out")
    from flyball_collectors.cloud.http import MetadataServer

    server = MetadataServer(settings.address, settings.timeout_s)
    return CloudCollector(CLOUDS[provider](server), node, settings.period_s)
