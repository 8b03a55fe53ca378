"""An incident as a Prometheus alert: labels, annotations, start and end."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Incident

ALERT = "FlyballIncident"
HOLD_S = 300.0
"""An alert that is not repeated for this long ends by itself."""


class Alert(msgspec.Struct, frozen=True):
    """One alert; Alertmanager identifies it by its labels. It is active while ``ends_ns`` is in the future."""

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_ns: int
    ends_ns: int
    link: str = ""

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """Key of the alert."""
        return tuple(sorted(self.labels.items()))

    def posted(self) -> dict[str, Any]:
        """Body in the format of Alertmanager's API v2 (postableAlert)."""
        body: dict[str, Any] = {
            "labels": self.labels, "annotations": self.annotations,
            "startsAt": rfc3339(self.starts_ns), "endsAt": rfc3339(self.ends_ns),
        }  # fmt: skip
        return {**body, "generatorURL": self.link} if self.link else body


def alert_of(one: Incident, now_ns: int, page: str = "") -> Alert:
    """The alert of an incident at a wall-clock time; it has ended unless the incident is open and not silenced.

    Severity and cause are labels, so that routes can select by them: an incident that changes them becomes another
    alert.
    """
    labels = {
        "alertname": ALERT, "incident": one.id, "cell": one.cell, "severity": one.severity, "cause": one.cause,
        "level": one.level, "node": one.node, "gpu": one.device, "workload": one.workload,
        "domain": one.domain,
    }  # fmt: skip
    annotations = {
        "summary": one.summary,
        "nodes": ", ".join(one.nodes),
        "gpus_affected": str(one.gpus_affected or ""),
        "actions": "; ".join(f"{a.type} {a.workload} {a.status}" for a in one.actions),
        "acknowledged_by": one.acknowledged_by,
        "merged_into": one.merged_into,
        "show": f"flyball incidents show {one.id}",
    }
    goes_on = one.status == "open" and not one.silence
    return Alert(
        {name: value for name, value in labels.items() if value},
        {name: value for name, value in annotations.items() if value},
        one.onset_ns,
        max(one.onset_ns, now_ns) + (round(HOLD_S * NS_PER_S) if goes_on else 0),  # clocks of nodes may be ahead
        f"{page.rstrip('/')}/incidents/{one.id}" if page else "",
    )


def over(alert: Alert, now_ns: int) -> Alert:
    """The same alert, ended."""
    return msgspec.structs.replace(alert, ends_ns=max(alert.starts_ns, now_ns))


def rfc3339(time_ns: int) -> str:
    """Time in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
