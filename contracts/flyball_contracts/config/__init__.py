"""Configuration types and the loader."""

from flyball_contracts.config.attribution import AttributionConfig as AttributionConfig
from flyball_contracts.config.base import Section as Section
from flyball_contracts.config.check import CheckConfig as CheckConfig
from flyball_contracts.config.choice import ChoiceConfig as ChoiceConfig, Offer as Offer
from flyball_contracts.config.export import ExportConfig as ExportConfig
from flyball_contracts.config.feeds import (
    AnyFeed as AnyFeed,
    AwsSpotAdvisorSettings as AwsSpotAdvisorSettings,
    AwsSpotPriceSettings as AwsSpotPriceSettings,
    AzureSpotPriceSettings as AzureSpotPriceSettings,
    ElectricityMapsSettings as ElectricityMapsSettings,
    FileFeedSettings as FileFeedSettings,
    GcpSpotPriceSettings as GcpSpotPriceSettings,
    UkCarbonSettings as UkCarbonSettings,
    WattTimeSettings as WattTimeSettings,
)
from flyball_contracts.config.fleet import (
    Batch as Batch,
    Burst as Burst,
    FailingGpu as FailingGpu,
    FailingLink as FailingLink,
    FleetConfig as FleetConfig,
    FleetWorkload as FleetWorkload,
    GridZone as GridZone,
    LeafFault as LeafFault,
    NodePool as NodePool,
    Notebooks as Notebooks,
    RackFault as RackFault,
    Reclaim as Reclaim,
    Service as Service,
    StragglingGpu as StragglingGpu,
    Training as Training,
)
from flyball_contracts.config.policies import (
    DecisionKey as DecisionKey,
    GuardPolicy as GuardPolicy,
    Limit as Limit,
    Quota as Quota,
    Span as Span,
    Window as Window,
)
from flyball_contracts.config.pools import PoolConfig as PoolConfig, PoolsConfig as PoolsConfig
from flyball_contracts.config.reading.loader import (
    load_config as load_config,
    located as located,
    parse_config as parse_config,
)
from flyball_contracts.config.types import (
    HORIZON_TICKS as HORIZON_TICKS,
    MAX_AGE_S as MAX_AGE_S,
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
    RightsizingConfig as RightsizingConfig,
    ScalerConfig as ScalerConfig,
    SizingConfig as SizingConfig,
    WorkerConfig as WorkerConfig,
)
from flyball_contracts.config.workload import (
    GatewayKind as GatewayKind,
    Series as Series,
    TargetSettings as TargetSettings,
    WorkloadsConfig as WorkloadsConfig,
)
