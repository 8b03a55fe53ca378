"""The end of a demo: one table, and whether the loop closed."""

from collections import Counter

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flyball_cli.demo.monitor import KINDS, Monitor
from flyball_contracts.topics import INSIGHTS, TELEMETRY

MOST_REASONS = 3


def failures(monitor: Monitor, expected: tuple[str, ...], broken: list[str]) -> list[str]:
    """Reasons why the loop did not close; none when it did."""
    found = list(broken)
    if not monitor.decisions:
        found.append("no decision was made")
    missing = [kind for kind in expected if not monitor.kinds[kind]]
    if monitor.decisions and missing:
        found.append(f"no decision of these kinds was made: {', '.join(missing)}")
    if unanswered := monitor.open_decisions():
        found.append(f"{len(unanswered)} decisions have no outcome")
    found += [f"{count} dead letters such as: {reason}" for reason, count in monitor.dead.most_common(MOST_REASONS)]
    return found


def show(
    console: Console,
    monitor: Monitor,
    problems: list[str],
    first_s: float | None,
    wall_s: float,
    *,
    interrupted: bool = False,
) -> None:
    """Print what happened, and the verdict."""
    table = Table(title="Flyball demo", title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("what")
    table.add_column("count", justify="right")
    table.add_column("")
    frames = monitor.sent(TELEMETRY.name)
    table.add_row("telemetry frames", str(frames), f"{frames / wall_s:.0f}/s over {wall_s:.0f} s")
    table.add_row("insights", str(monitor.sent(INSIGHTS.name)), "profiles, forecasts, anomalies, plans")
    for kind in KINDS:
        example = next((s for s in monitor.decisions.values() if s.kind == kind), None)
        table.add_row(f"{kind} decisions", str(monitor.kinds[kind]), escape(_short(example.reason)) if example else "")
    statuses = Counter(f"{o.status}{f' ({o.code})' if o.code else ''}" for o in monitor.outcomes.values())
    table.add_row("outcomes", str(len(monitor.outcomes)), ", ".join(f"{n} {s}" for s, n in sorted(statuses.items())))
    table.add_row("dead letters", str(sum(monitor.dead.values())), "")
    if first_s is not None:
        table.add_row("first decision", f"{first_s:.1f} s", "after the start")
    console.print(table)
    if problems:
        for problem in problems:
            console.print(f"[red]not closed[/]: {escape(problem)}")
    elif interrupted:
        console.print("interrupted")
    else:
        console.print("[green]the loop closed[/]: every decision has its outcome, nothing was refused unread")


def _short(text: str, width: int = 90) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
