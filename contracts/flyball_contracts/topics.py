"""The topic table, as data."""

from typing import Literal

import msgspec

Retention = Literal["hours", "days", "long", "compacted"]
RETENTION_MS: dict[Retention, int] = {
    "hours": 6 * 3_600_000,
    "days": 7 * 86_400_000,
    "long": 400 * 86_400_000,
    "compacted": -1,
}


class Topic(msgspec.Struct, frozen=True):
    """One topic: its name, key, record types, retention, and default number of partitions.

    ``cloudevents`` topics carry JSON in CloudEvents 1.0 binary mode; the others carry msgpack. Messages of ``portable``
    topics are stored by the broker in a codec that every client has; the others stay as they were sent, in zstd.
    """

    name: str
    key: str
    holds: str
    retention: Retention
    partitions: int
    cloudevents: bool = True
    portable: bool = False

    @property
    def config(self) -> dict[str, str]:
        """Topic configuration for a broker's admin API."""
        codec = {"compression.type": "gzip"} if self.portable else {}
        if self.retention == "compacted":
            return {"cleanup.policy": "compact", **codec}
        return {"cleanup.policy": "delete", "retention.ms": str(RETENTION_MS[self.retention]), **codec}


TELEMETRY = Topic("flyball.telemetry.v1", "node", "telemetry frames", "hours", 8, cloudevents=False)
EVENTS = Topic("flyball.events.v1", "node", "node events", "days", 8)
INVENTORY = Topic("flyball.inventory.v1", "node", "node inventories", "compacted", 8)
WORKLOADS = Topic("flyball.workloads.v1", "workload", "workload specifications", "compacted", 4)
CONTROLS = Topic("flyball.controls.v1", "cell or decision", "stops and approvals", "compacted", 1)
POOLS = Topic("flyball.pools.v1", "pool", "machines that may be bought", "compacted", 1)
SIGNALS = Topic("flyball.signals.v1", "zone", "carbon, price and spot curves", "days", 4)
DEMAND = Topic("flyball.demand.v1", "cell", "demand of workloads, tick by tick", "hours", 4)
INSIGHTS = Topic(
    "flyball.insights.v1", "subject", "profiles, forecasts, anomalies, plans, accounts, platforms", "days", 4
)
PROPOSALS = Topic("flyball.proposals.v2", "cell", "proposals of the lanes", "hours", 4)
DECISIONS = Topic("flyball.decisions.v1", "cell", "scale, migrate and preempt commands", "long", 4, portable=True)
OUTCOMES = Topic("flyball.outcomes.v1", "target", "what became of decisions", "long", 4, portable=True)
INCIDENTS = Topic(
    "flyball.incidents.v1",
    "cell/incident or node",
    "what is wrong, why, what was done, and which nodes are cordoned",
    "long",
    4,
    portable=True,
)
RESPONSES = Topic(
    "flyball.responses.v1", "response", "acknowledgements, silences, labels, readmissions", "compacted", 1
)
STATE = Topic("flyball.state.v1", "lane/partition", "engine snapshots", "compacted", 4, cloudevents=False)
DEAD_LETTERS = Topic("flyball.dlq.v1", "original key", "messages that were refused", "days", 4, cloudevents=False)

TOPICS: dict[str, Topic] = {
    topic.name: topic
    for topic in (
        TELEMETRY, EVENTS, INVENTORY, WORKLOADS, CONTROLS, POOLS, SIGNALS, DEMAND, INSIGHTS, PROPOSALS, DECISIONS,
        OUTCOMES, INCIDENTS, RESPONSES, STATE, DEAD_LETTERS,
    )
}  # fmt: skip
