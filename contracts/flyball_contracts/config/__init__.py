"""Configuration types and the loader."""

from flyball_contracts.config.attribution import AttributionConfig as AttributionConfig, NamingRule as NamingRule
from flyball_contracts.config.choice import ChoiceConfig as ChoiceConfig, Offer as Offer
from flyball_contracts.config.cloud import CloudConfig as CloudConfig
from flyball_contracts.config.export import ExportConfig as ExportConfig
from flyball_contracts.config.feeds import (
    AwsSpotAdvisorSettings as AwsSpotAdvisorSettings,
    AwsSpotPriceSettings as AwsSpotPriceSettings,
    AzureSpotPriceSettings as AzureSpotPriceSettings,
    ElectricityMapsSettings as ElectricityMapsSettings,
    FeedsConfig as FeedsConfig,
    FeedSettings as FeedSettings,
    FileFeedSettings as FileFeedSettings,
    GcpSpotPriceSettings as GcpSpotPriceSettings,
    SpotSettings as SpotSettings,
    UkCarbonSettings as UkCarbonSettings,
    WattTimeSettings as WattTimeSettings,
)
from flyball_contracts.config.fleet import (
    Batch as Batch,
    Burst as Burst,
    FailingGpu as FailingGpu,
    FleetConfig as FleetConfig,
    FleetWorkload as FleetWorkload,
    GridZone as GridZone,
    NodePool as NodePool,
    Notebooks as Notebooks,
    Service as Service,
    StragglingGpu as StragglingGpu,
    Training as Training,
)
from flyball_contracts.config.gateway import (
    GatewayKind as GatewayKind,
    GatewaySeries as GatewaySeries,
    GatewaySettings as GatewaySettings,
)
from flyball_contracts.config.keys import DecisionKey as DecisionKey
from flyball_contracts.config.loader import load_config as load_config, parse_config as parse_config
from flyball_contracts.config.nvml import GpuConfig as GpuConfig
from flyball_contracts.config.policies import (
    GuardPolicy as GuardPolicy,
    Limit as Limit,
    Quota as Quota,
    Span as Span,
    Window as Window,
)
from flyball_contracts.config.pools import PoolConfig as PoolConfig
from flyball_contracts.config.queue import QueueConfig as QueueConfig
from flyball_contracts.config.rightsizing import RightsizingConfig as RightsizingConfig
from flyball_contracts.config.types import (
    ActuatorConfig as ActuatorConfig,
    AgentConfig as AgentConfig,
    BlastRadius as BlastRadius,
    Config as Config,
    ControllerConfig as ControllerConfig,
    DashboardConfig as DashboardConfig,
    ForecastConfig as ForecastConfig,
    HealthConfig as HealthConfig,
    InfluxConfig as InfluxConfig,
    KafkaConfig as KafkaConfig,
    PlatformConfig as PlatformConfig,
    RateLimit as RateLimit,
    ScalerConfig as ScalerConfig,
    Section as Section,
    SizingConfig as SizingConfig,
    TimingConfig as TimingConfig,
    WorkerConfig as WorkerConfig,
)
from flyball_contracts.config.workload import (
    KubernetesSettings as KubernetesSettings,
    LogSettings as LogSettings,
    Series as Series,
    SlurmSettings as SlurmSettings,
    TargetSettings as TargetSettings,
    Work as Work,
    WorkloadsConfig as WorkloadsConfig,
)
