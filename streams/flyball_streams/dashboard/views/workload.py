"""One workload."""

from collections import Counter

from nicegui import ui

from flyball_contracts.records import Scenario, WorkloadAccount, WorkloadSpec
from flyball_streams.dashboard.charts.service import Quantity, service_options
from flyball_streams.dashboard.links import node_link
from flyball_streams.dashboard.panels.capacity import CapacityPanel
from flyball_streams.dashboard.panels.decisions import DecisionPanel
from flyball_streams.dashboard.panels.demand import DemandPanel
from flyball_streams.dashboard.panels.elements import box, chart, head, panel, patch, show, text
from flyball_streams.dashboard.panels.incidents import IncidentPanel
from flyball_streams.dashboard.preferences import Preferences
from flyball_streams.dashboard.state.accounts import Moment, share_in_time
from flyball_streams.dashboard.state.fleet import FleetView
from flyball_streams.dashboard.state.summary import SummaryCache
from flyball_streams.dashboard.text import UNKNOWN, count, number, percent, plural, quantity, span
from flyball_streams.dashboard.views.base import Fact, FactPanel, Table, Title, View, describe_gone

_QUANTITIES: tuple[Quantity, ...] = ("share", "queued", "delay_s")
MAX_NODES = 40


class WorkloadView(View):
    """Specification, service with and without Flyball, demand, placement, incidents and decisions."""

    def __init__(self, name: str, prefs: Preferences) -> None:
        self._name = name
        self._prefs = prefs
        self._title = Title("Workload", name)
        self._charts: dict[Quantity, ui.echart] = {}
        with box("board two", "main"):
            with box("stack"):
                self._facts = FactPanel("About it", f"No specification of {name} has arrived")
                self._accounts = FactPanel("Since the start", "No account of it: flyball.insights.v1 holds none")
                with panel("placed", "Nodes"):
                    with head("Nodes that it runs on"):
                        self._where = text(classes="sub")
                    self._nodes = Table(("node", "replicas", "GPUs", "zone"))
            with box("stack"):
                with panel("served", "Service") as self._served:
                    head("Requests in time, queue and latency")
                    with box("three"):
                        for quantity in _QUANTITIES:
                            options = service_options(quantity, [], [], prefs)
                            self._charts[quantity] = chart(options, "chart chart-history")
                self._demand = DemandPanel(prefs, name)
                self._capacity = CapacityPanel(name)
                self._incidents = IncidentPanel(
                    prefs, wanted=lambda report: report.workload == name, nothing="Nothing was reported of it"
                )
                self._decisions = DecisionPanel(
                    prefs,
                    wanted=lambda decision: decision.workload == name,
                    nothing="No decision about it so far",
                )

    def update(self, view: FleetView, cache: SummaryCache) -> None:
        """Patch what changed."""
        workload = view.workloads.get(self._name)
        accounts = view.accounts.of_workload(self._name)
        describe_gone(self._title, "" if workload is not None or accounts else "not known")
        spec = workload.spec if workload else None
        self._facts.update(_spec(spec, self._prefs) if spec else [])
        self._accounts.update(_account(accounts))
        cell = next((name for name in view.accounts.cells("actual") if self._moments(view, "actual", name)), "")
        show(self._served, bool(cell))
        if cell:
            actual, baseline = self._moments(view, "actual", cell), self._moments(view, "baseline", cell)
            for quantity, drawn in self._charts.items():
                options = service_options(quantity, actual, baseline, self._prefs)
                patch(drawn, options, f"{quantity} of {self._name}")
        self._demand.update(view)
        self._capacity.update(view)
        self._place(view)
        self._incidents.update(view, cache.now)
        self._decisions.update(view)

    def _moments(self, view: FleetView, scenario: Scenario, cell: str) -> list[Moment]:
        return view.accounts.moments(scenario, cell, self._name)

    def _place(self, view: FleetView) -> None:
        replicas: Counter[str] = Counter()
        gpus: Counter[str] = Counter()
        zones: dict[str, str] = {}
        for node in view.nodes.values():
            for allocation in node.inventory.allocations if node.inventory else ():
                if allocation.workload == self._name and node.inventory is not None:
                    replicas[node.name] += 1
                    gpus[node.name] += len(allocation.devices)
                    zones[node.name] = node.inventory.zone
        names = sorted(replicas)
        more = f", first {MAX_NODES} shown" if len(names) > MAX_NODES else ""
        whole = f"{plural(sum(replicas.values()), 'replica')}, {plural(sum(gpus.values()), 'GPU')}"
        self._where.set_text(f"{whole} on {plural(len(names), 'node')}{more}" if names else "none")
        self._nodes.update(
            [
                ((name, node_link(name)), count(replicas[name]), count(gpus[name]), zones[name] or UNKNOWN)
                for name in names[:MAX_NODES]
            ]
        )


def _spec(spec: WorkloadSpec, prefs: Preferences) -> list[Fact]:
    objective = spec.objective
    share = ""
    if objective is not None:
        share = f"{percent(objective.attainment, 1)} of the requests wait less than {span(objective.delay_s)}"
    capacity = f"{number(spec.capacity_per_replica)} work/s" if spec.capacity_per_replica else "not given"
    models = f" on {', '.join(spec.gpu_models)}" if spec.gpu_models else ""
    return [
        Fact("kind", spec.kind),
        Fact("cell", spec.cell),
        Fact("tenant", spec.tenant),
        Fact("priority", str(spec.priority)),
        Fact("objective", share),
        Fact("replicas", f"{count(spec.min_replicas)} to {count(spec.max_replicas)}"),
        Fact("gang", plural(spec.gang_size, "replica") if spec.gang_size > 1 else ""),
        Fact("a replica has", f"{_gpus(spec.gpus_per_replica)}{models}"),
        Fact("a replica sustains", capacity),
        Fact("cold start", span(spec.cold_start_s)),
        Fact("interruptible", "yes" if spec.interruptible else "no"),
        Fact("restarted once it hangs for", span(spec.restart_hung_after_s) if spec.restart_hung_after_s else ""),
        Fact("runs in all", span(spec.duration_s) if spec.duration_s else ""),
        Fact("deadline", prefs.stamp(spec.deadline_ns) if spec.deadline_ns else ""),
        Fact("a pause costs", span(spec.checkpoint_s) if spec.checkpoint_s else ""),
        Fact("power of a replica", quantity(spec.power_w_per_replica, "W") if spec.power_w_per_replica else ""),
        Fact("declared", prefs.stamp(spec.time_ns)),
    ]


def _gpus(gpus: float) -> str:
    return f"{number(gpus)} GPU" if gpus <= 1 else f"{number(gpus)} GPUs"


def _account(accounts: dict[Scenario, WorkloadAccount]) -> list[Fact]:
    ours, other = accounts.get("actual"), accounts.get("baseline")
    if ours is None:
        return []
    names = (
        "requests in time",
        "requests",
        "requests that wait",
        "replicas",
        "GPU-hours",
        "lost GPU-hours",
        "progress",
        "ended",
    )
    beside = _numbers(other) if other is not None else None
    rows: list[Fact] = []
    for place, (name, label) in enumerate(zip(names, _numbers(ours), strict=True)):
        if label:
            rows.append(Fact(name, f"{label}; without Flyball {beside[place]}" if beside and beside[place] else label))
    return rows


def _numbers(part: WorkloadAccount) -> list[str]:
    share = None
    if part.requests is not None and part.in_time is not None:
        share = share_in_time(part.requests, part.in_time, part.queued or 0.0)
    ended = {None: "", True: "before its deadline", False: "after its deadline"}[part.in_time_end]
    return [
        "" if share is None else percent(share, 1),
        "" if part.requests is None else count(part.requests),
        "" if part.queued is None else f"{count(part.queued)}, a new one {span(part.delay_s or 0.0)}",
        f"{count(part.ready)} of {count(part.replicas)} ready",
        number(part.gpu_h),
        number(part.lost_gpu_h) if part.lost_gpu_h else "",
        "" if part.progress is None else percent(part.progress),
        ended,
    ]
