"""Current curves of the feeds as a table."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from flyball_collectors.feeds.run import Answer
from flyball_contracts.ids import NS_PER_S

UNITS = {
    "carbon_intensity": "gCO2e/kWh",
    "electricity_price": "USD/kWh",
    "spot_price": "USD/h",
    "spot_risk": "1/h",
}


def render(answers: Sequence[Answer]) -> Group:
    """A row for each curve, then a line for each feed without one; fits 80 columns."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("feed", overflow="fold")
    for name in ("now", "lowest", "highest"):
        table.add_column(name, justify="right")
    table.add_column("unit")
    table.add_column("hours", justify="right")
    table.add_column("issued (UTC)")
    for answer in answers:
        for signal in answer.signals:
            issued = datetime.fromtimestamp(signal.published_ns // NS_PER_S, UTC)
            values = (signal.p50[0], min(signal.p50), max(signal.p50))
            table.add_row(
                answer.name,
                *(f"{value:.4g}" for value in values),
                UNITS[signal.kind] if signal.average else f"{UNITS[signal.kind]} (marginal)",
                f"{len(signal.p50) * signal.step_s / 3600.0:g}",
                f"{issued:%d %b %H:%M}",
            )
    errors = [Text(f"{answer.name}: {answer.error}", "red") for answer in answers if answer.error]
    return Group(*([table] if table.row_count else []), *errors)
