"""The end of a demo: what happened, the benefit, and whether the loop closed."""

from collections import Counter
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flyball_cli.demo.monitor import Monitor
from flyball_cli.demo.worth import comparison
from flyball_contracts.records import DECISION_TYPES, Account
from flyball_contracts.simulated import Operation
from flyball_contracts.topics import INSIGHTS, TELEMETRY

MOST_REASONS = 3


class Verdict(NamedTuple):
    """Why the loop did not close (empty: it did), and the platform's accounts."""

    problems: list[str]
    accounts: Mapping[str, Account]
    operations: Mapping[str, Operation]


def failures(
    monitor: Monitor, operations: Mapping[str, Operation], expected: tuple[str, ...], broken: list[str]
) -> list[str]:
    """Reasons why the loop did not close; empty if it did.

    Outcomes with status done are compared with the platform's operations.
    """
    found = list(broken)
    if not monitor.decisions:
        found.append("no decision was made")
    missing = [kind for kind in expected if not monitor.kinds[kind]]
    if monitor.decisions and missing:
        found.append(f"no decision of these kinds was made: {', '.join(missing)}")
    if unanswered := sorted(set(monitor.open_decisions()) - set(monitor.under_way())):
        found.append(f"{len(unanswered)} decisions have no last outcome, such as {unanswered[0]}")
    done = [o for o in monitor.outcomes.values() if o.status == "done"]
    if monitor.decisions and not done:
        found.append("no effect was observed")
    carried_out = {name for name, operation in operations.items() if operation.status == "done"}
    unseen = [o.decision for o in done if operations and o.decision not in carried_out]
    if unseen:
        found.append(f"{len(unseen)} decisions are reported done, but were not carried out, such as {unseen[0]}")
    if twice := [o.id for o in operations.values() if o.effects > 1]:
        found.append(f"{len(twice)} decisions had more than one effect, such as {twice[0]}")
    found += [f"{count} dead letters such as: {reason}" for reason, count in monitor.dead.most_common(MOST_REASONS)]
    return found


def show(
    console: Console,
    monitor: Monitor,
    verdict: Verdict,
    first_s: float | None,
    wall_s: float,
    *,
    interrupted: bool = False,
) -> None:
    """Print the events, the benefit, and the verdict."""
    table = Table(title="Flyball demo", title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("")
    frames = monitor.sent(TELEMETRY.name)
    table.add_row("telemetry frames", str(frames), f"{frames / wall_s:.0f}/s over {wall_s:.0f} s")
    table.add_row("insights", str(monitor.sent(INSIGHTS.name)), "profiles, forecasts, anomalies, plans, accounts")
    for kind in DECISION_TYPES:
        example = next((s for s in monitor.decisions.values() if s.kind == kind), None)
        table.add_row(f"{kind} decisions", str(monitor.kinds[kind]), escape(_short(example.reason)) if example else "")
    under_way = len(monitor.under_way())
    statuses = Counter(f"{o.status}{f' ({o.code})' if o.code else ''}" for o in monitor.outcomes.values())
    counts = ", ".join(f"{n} {s}" for s, n in sorted(statuses.items()))
    table.add_row("outcomes", str(len(monitor.outcomes)), counts + (f"; {under_way} under way" if under_way else ""))
    done = [o for o in monitor.outcomes.values() if o.status == "done"]
    took = [o.effect_after_s for o in done if o.effect_after_s is not None]
    table.add_row(
        "effects observed", str(len(done)), f"{median(took):.0f} s after the decision (median)" if took else ""
    )
    table.add_row("dead letters", str(sum(monitor.dead.values())), "")
    if first_s is not None:
        table.add_row("first decision", f"{first_s:.1f} s", "after the start")
    console.print(table)
    worth = comparison(verdict.accounts)
    if worth is not None:
        console.print()
        console.print(worth)
    console.print()
    if verdict.problems:
        for problem in verdict.problems:
            console.print(f"[red]not closed[/]: {escape(problem)}")
    elif interrupted:
        console.print("interrupted")
    else:
        console.print("[green]the loop closed[/]: every decision was answered, and the platform shows the effects")


def _short(text: str, width: int = 90) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
