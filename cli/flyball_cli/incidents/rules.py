"""Alert rules for Prometheus, generated from the agents' metrics, so that names are always correct."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from flyball_collectors.export.names import label, metric_family_of
from flyball_collectors.export.rows import column_attributes
from flyball_contracts.metrics import LAYOUTS

HEAD = """\
# Alert rules for Prometheus and vmalert: `flyball incidents rules` prints this file.
# They look at one GPU at a time, and know neither gangs nor what Flyball itself has done; the incidents of
# `flyball incidents notify` do. Use them where no worker runs, and as a second pair of eyes where one does.
# PlatformUnanswered is about what actuators report: it needs the store that `flyball sink influx` writes to.
"""


class Rule(NamedTuple):
    """``expr`` has metrics of the contract in «»; ``after`` is how long it must hold."""

    alert: str
    expr: str
    after: str
    severity: str
    cause: str
    summary: str


RULES = (
    Rule("GpuUncorrectedErrors", "increase(«hw.errors{type=uncorrected}»[10m]) > 0", "0m", "critical", "gpu",
         "uncorrected ECC errors"),
    Rule("GpuRecoveryAsked", "«nvidia.gpu.recovery_action» > 0", "0m", "critical", "gpu",
         "the driver requests a recovery action"),
    Rule("GpuRowRemapFailed", "«nvidia.gpu.memory.row_remap.failed» > 0", "0m", "critical", "gpu",
         "a row of memory could not be remapped"),
    Rule("GpuXidEvents", "increase(«nvidia.gpu.xid.events»[10m]) > 0", "0m", "warning", "unknown",
         "the driver reports XIDs"),
    Rule("GpuThermalSlowdown", "rate(«nvidia.gpu.throttle.time{reason=thermal}»[5m]) > 0.1", "5m", "warning", "thermal",
         "clocks are lowered by heat in a tenth of the time"),
    Rule("GpuPowerBrake", "rate(«nvidia.gpu.throttle.time{reason=hw_power_brake}»[5m]) > 0", "1m", "critical", "power",
         "the power brake of the host lowers clocks"),
    Rule("GpuPcieReplays", "rate(«nvidia.gpu.pcie.replays»[10m]) > 1", "10m", "warning", "pcie",
         "PCIe repeats what it sends"),
    Rule("GpuNvlinkErrors", "increase(«nvidia.gpu.nvlink.errors»[10m]) > 0", "0m", "warning", "nvlink",
         "NVLink errors"),
    Rule("GpuMemoryFull", "«hw.gpu.memory.utilization» > 0.98", "10m", "warning", "gpu_memory",
         "memory is nearly full"),
    Rule("HostStorageStalls", "rate(«system.linux.psi.total_time{resource=io,stall=full}»[5m]) > 0.3", "10m", "warning",
         "storage", "everything waits for storage in a third of the time"),
    Rule("HostMemoryStalls", "rate(«system.linux.psi.total_time{resource=memory,stall=full}»[5m]) > 0.1", "5m",
         "warning", "host", "everything waits for memory in a tenth of the time"),
    Rule("PlatformUnanswered", '{__name__="flyball.actuator.breaker_open"} == 1', "2m", "critical", "unknown",
         "{{ $labels.driver }} of {{ $labels.cells }} gives the actuator no answer; calls are held back"),
)  # fmt: skip
_WHERE = {"Gpu": "GPU {{ $labels.hw_id }} of {{ $labels.instance }}: ", "Pla": "Platform "}
"""How a summary begins, by the first three letters of the alert; others name the instance."""


def rules_yaml() -> str:
    """The rules file."""
    found = [_rule(rule) for rule in RULES]
    body = yaml.safe_dump({"groups": [{"name": "flyball", "rules": found}]}, sort_keys=False, width=120)
    return HEAD + body


def selectors() -> Mapping[str, str]:
    """PromQL selector of each metric of the contract; if two layouts have it, the first counts."""
    found: dict[str, str] = {}
    for layout in LAYOUTS.values():
        for metric in layout.metrics:
            metric_family = metric_family_of(metric)
            labels = ",".join(f'{label(k)}="{v}"' for k, v in column_attributes(layout, metric).items())
            name = f"{metric_family.name}_total" if metric_family.type == "counter" else metric_family.name
            found.setdefault(metric.key, f"{name}{{{labels}}}" if labels else name)
    return found


def _rule(rule: Rule) -> dict[str, Any]:
    known = selectors()
    expr = re.sub("«([^»]*)»", lambda match: known[match[1]], rule.expr)
    return {
        "alert": rule.alert, "expr": expr, "for": rule.after,
        "labels": {"severity": rule.severity, "cause": rule.cause},
        "annotations": {"summary": _WHERE.get(rule.alert[:3], "{{ $labels.instance }}: ") + rule.summary},
    }  # fmt: skip
