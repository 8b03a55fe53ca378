"""Instance metadata of AWS, Google Cloud and Azure: what machine this is, and when the cloud takes it back."""

from collections.abc import Callable, Mapping
from pathlib import Path

from flyball_collectors.cloud.aws import Aws
from flyball_collectors.cloud.azure import Azure
from flyball_collectors.cloud.base import Cloud as Cloud, MetadataError as MetadataError, Notice as Notice
from flyball_collectors.cloud.collector import CloudCollector as CloudCollector
from flyball_collectors.cloud.detect import provider_of
from flyball_collectors.cloud.gcp import Gcp
from flyball_collectors.cloud.http import MetadataServer
from flyball_collectors.nvml import Absent
from flyball_collectors.parameters import CloudParameters
from flyball_contracts.config import CloudConfig
from flyball_contracts.config.constants import with_constants

CLOUDS: Mapping[str, Callable[[MetadataServer], Cloud]] = {"aws": Aws, "gcp": Gcp, "azure": Azure}


def open_cloud(section: CloudConfig, node: str, root: Path = Path("/")) -> CloudCollector | Absent:
    """Collector of this machine's cloud, or why there is none; asks nothing yet and never raises."""
    config = with_constants(CloudParameters, section)
    if config.provider == "none":
        return Absent("switched off", "set agent.cloud.provider to auto")
    provider = provider_of(root) if config.provider == "auto" else config.provider
    if not provider:
        remedy = "nothing to do on a machine of your own; else set agent.cloud.provider"
        return Absent("the firmware names none of AWS, Google Cloud and Azure", remedy)
    kind = CLOUDS[provider]
    server = MetadataServer(config.address, config.timeout_s)
    return CloudCollector(kind(server), node, config.period_s)
