"""The records that travel between the parts."""

from flyball_contracts.records.accounts import (
    Account as Account,
    Scenario as Scenario,
    WorkloadAccount as WorkloadAccount,
)
from flyball_contracts.records.base import (
    Evidence as Evidence,
    Part as Part,
    Record as Record,
    TableOffsets as TableOffsets,
    Tick as Tick,
)
from flyball_contracts.records.commands.alternatives import Alternatives as Alternatives
from flyball_contracts.records.commands.controls import Approval as Approval, Stop as Stop
from flyball_contracts.records.commands.decisions import (
    DECISION_TYPES as DECISION_TYPES,
    AnyDecision as AnyDecision,
)
from flyball_contracts.records.commands.kinds.base import (
    Decision as Decision,
    Effect as Effect,
    Wording as Wording,
)
from flyball_contracts.records.commands.kinds.check import Check as Check
from flyball_contracts.records.commands.kinds.migrate import Migrate as Migrate
from flyball_contracts.records.commands.kinds.preempt import Preempt as Preempt
from flyball_contracts.records.commands.kinds.replicas import SetsReplicas as SetsReplicas
from flyball_contracts.records.commands.kinds.scale import Scale as Scale
from flyball_contracts.records.commands.outcomes import Counted as Counted, Outcome as Outcome
from flyball_contracts.records.commands.portion import Portion as Portion
from flyball_contracts.records.commands.proposals import (
    Action as Action,
    Proposal as Proposal,
    ProposalTick as ProposalTick,
)
from flyball_contracts.records.commands.resources import Resources as Resources
from flyball_contracts.records.commands.states import SubjectState as SubjectState
from flyball_contracts.records.demand import (
    Arrivals as Arrivals,
    Clocks as Clocks,
    Demand as Demand,
    DemandTick as DemandTick,
    Features as Features,
    Latencies as Latencies,
    Member as Member,
    Usage as Usage,
)
from flyball_contracts.records.events import NodeEvent as NodeEvent
from flyball_contracts.records.incidents import (
    Cause as Cause,
    Incident as Incident,
    IncidentAction as IncidentAction,
    NodeCondition as NodeCondition,
    Symptom as Symptom,
)
from flyball_contracts.records.insights import (
    Anomaly as Anomaly,
    Capacity as Capacity,
    ColdStart as ColdStart,
    Forecast as Forecast,
    MachineChoice as MachineChoice,
    Method as Method,
    Plan as Plan,
    Profile as Profile,
)
from flyball_contracts.records.inventory import (
    Allocation as Allocation,
    Device as Device,
    Gateway as Gateway,
    Inventory as Inventory,
    Link as Link,
    NumaNode as NumaNode,
)
from flyball_contracts.records.platforms import PlatformStatus as PlatformStatus
from flyball_contracts.records.pools import Pool as Pool
from flyball_contracts.records.profiles import (
    Opinion as Opinion,
    Similar as Similar,
    Waste as Waste,
    WorkloadProfile as WorkloadProfile,
)
from flyball_contracts.records.responses import (
    Acknowledgement as Acknowledgement,
    Label as Label,
    Readmission as Readmission,
    Response as Response,
    Silence as Silence,
)
from flyball_contracts.records.signals import Signal as Signal
from flyball_contracts.records.snapshot import Snapshot as Snapshot
from flyball_contracts.records.workloads import (
    Architecture as Architecture,
    Objective as Objective,
    WorkloadSpec as WorkloadSpec,
)
