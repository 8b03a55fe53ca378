"""Cost and results of operating the fleet, with and without Flyball over the same time."""

from dataclasses import dataclass
from typing import NamedTuple

from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Account, Scenario, WorkloadAccount
from flyball_streams.dashboard.state.bounded import Bounded
from flyball_streams.dashboard.state.thinned import Thinned

J_PER_KWH = 3.6e6
WINDOW_NS = 60 * NS_PER_S  # a moment's share of requests in time covers this window
MAX_LEDGERS = 128


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over cells since the start; ``delay_s`` is the mean over services of a new request's wait."""

    cells: int
    since_ns: int
    time_ns: int
    gpu_h: float
    cost_usd: float
    energy_kwh: float
    carbon_kg: float
    lost_gpu_h: float
    useful_gpu_h: float | None
    requests: float
    in_time: float
    queued: float
    delay_s: float | None

    @property
    def share(self) -> float | None:
        """Share of requests in time, among those that have ended."""
        return share_in_time(self.requests, self.in_time, self.queued)


def share_in_time(requests: float, in_time: float, queued: float) -> float | None:
    """Share of requests in time, among those that have ended; waiting ones are not counted."""
    ended = requests - queued
    return max(0.0, min(1.0, in_time / ended)) if ended > 0 else None


class Moment(NamedTuple):
    """Service at one time: share in time over the last minute, waiting requests, and the wait of a new request."""

    time_ns: int
    share: float | None
    queued: float
    delay_s: float | None


class Ledger:
    """Accounts of one cell in one scenario."""

    def __init__(self) -> None:
        self.since_ns = -1
        self.history: Thinned[Account] = Thinned()

    def add(self, account: Account) -> None:
        """Add an account; a later start begins a new history, an earlier start is outdated and ignored."""
        if account.since_ns > self.since_ns:
            self.since_ns, self.history = account.since_ns, Thinned()
        if account.since_ns == self.since_ns:
            self.history.add(account.time_ns, account)

    def moments(self, workload: str = "") -> list[Moment]:
        """Service over time, of the cell or of one workload."""
        known = [(time, _counts(account, workload)) for time, account in self.history.items()]
        found: list[Moment] = []
        first = 0
        for place, (time_ns, counts) in enumerate(known):
            if counts is None:
                continue
            while first + 1 < place and time_ns - known[first + 1][0] >= WINDOW_NS:
                first += 1
            old = known[first][1] if place else None
            share = None
            if old is not None:
                share = share_in_time(*(new - was for new, was in zip(counts[:3], old[:3], strict=True)))
            found.append(Moment(time_ns, share, counts.queued, counts.delay_s))
        return found


class _Counts(NamedTuple):
    requests: float
    in_time: float
    queued: float
    delay_s: float | None


def _counts(account: Account, workload: str) -> _Counts | None:
    if not workload:
        return _Counts(account.requests, account.in_time, account.queued, delay_of(account))
    for part in account.workloads:
        if part.workload == workload and part.requests is not None and part.in_time is not None:
            return _Counts(part.requests, part.in_time, part.queued or 0.0, part.delay_s)
    return None


def delay_of(account: Account) -> float | None:
    """Mean wait of a new request, weighted with the requests of each service so far."""
    parts = [(part.requests or 0.0, part.delay_s) for part in account.workloads if part.delay_s is not None]
    weight = sum(requests for requests, _ in parts)
    if not parts:
        return None
    if weight <= 0:
        return sum(delay for _, delay in parts) / len(parts)
    return sum(requests * delay for requests, delay in parts) / weight


class Accounts:
    """The ledgers of all cells."""

    def __init__(self) -> None:
        self.ledgers: Bounded[tuple[str, Scenario], Ledger] = Bounded(MAX_LEDGERS)

    def add(self, account: Account) -> None:
        """Add an account."""
        self.ledgers.ensure((account.cell, account.scenario), Ledger).add(account)

    def cells(self, scenario: Scenario) -> list[str]:
        """Cells with accounts of a scenario."""
        return sorted(cell for cell, kind in self.ledgers if kind == scenario)

    def totals(self) -> tuple[Totals | None, Totals | None]:
        """Actual totals, and those of the baseline without Flyball, up to the same time.

        The latter is ``None`` unless each cell with accounts has one with the same start.
        """
        actual: list[Account] = []
        baseline: list[Account] = []
        for cell in self.cells("actual"):
            real, other = self.ledgers.get((cell, "actual")), self.ledgers.get((cell, "baseline"))
            last = real.history.latest() if real else None
            if real is None or last is None:
                continue
            beside = other.history.latest() if other and other.since_ns == real.since_ns else None
            if other is not None and beside is not None:
                time_ns = min(last.time_ns, beside.time_ns)
                last, beside = real.history.at(time_ns) or last, other.history.at(time_ns) or beside
                baseline.append(beside)
            actual.append(last)
        return _sum(actual), _sum(baseline) if len(baseline) == len(actual) else None

    def moments(self, scenario: Scenario, cell: str, workload: str = "") -> list[Moment]:
        """Service of a cell or workload over time."""
        ledger = self.ledgers.get((cell, scenario))
        return ledger.moments(workload) if ledger is not None else []

    def of_workload(self, name: str) -> dict[Scenario, WorkloadAccount]:
        """The latest account of one workload in each scenario, if any."""
        found: dict[Scenario, WorkloadAccount] = {}
        for (_, scenario), ledger in self.ledgers.items():
            last = ledger.history.latest()
            for part in last.workloads if last else ():
                if part.workload == name:
                    found[scenario] = part
        return found


def _sum(accounts: list[Account]) -> Totals | None:
    if not accounts:
        return None
    delays = [(account.requests, delay) for account in accounts if (delay := delay_of(account)) is not None]
    weight = sum(requests for requests, _ in delays)
    useful = [account.useful_gpu_h for account in accounts]
    return Totals(
        cells=len(accounts),
        since_ns=min(account.since_ns for account in accounts),
        time_ns=max(account.time_ns for account in accounts),
        gpu_h=sum(account.gpu_h for account in accounts),
        cost_usd=sum(account.cost_usd for account in accounts),
        energy_kwh=sum(account.energy_j for account in accounts) / J_PER_KWH,
        carbon_kg=sum(account.carbon_g for account in accounts) / 1000,
        lost_gpu_h=sum(account.lost_gpu_h for account in accounts),
        useful_gpu_h=None if None in useful else sum(hours for hours in useful if hours is not None),
        requests=sum(account.requests for account in accounts),
        in_time=sum(account.in_time for account in accounts),
        queued=sum(account.queued for account in accounts),
        delay_s=sum(r * delay for r, delay in delays) / weight if weight > 0 else None,
    )
