"""A confirmation as text, for the terminal and the page."""

from flyball_streams.backtest.events.confirm import Compared, Confirmation, Measured, Pair

NEAR = 0.02
"""Policies whose costs differ by less than this in either engine are near ties."""
COLUMNS = (
    "fluid",
    "single requests",
    "fluid hours",
    "hours",
    "fluid in time",
    "in time",
    "worst",
    "p99 wait",
    "act/h",
    "flaps/h",
)


def change(measured: Measured) -> str:
    """Change of cost at equal service relative to the baseline, in one engine."""
    if measured.equal_hours is None:
        return "not reached"
    if measured.ratio is None:
        return f"{measured.equal_hours:,.0f} h"
    return f"{100 * (measured.ratio - 1):+.1f} %" + (" (limited)" if measured.limited else "")


def entries(row: Compared) -> tuple[str, ...]:
    """Table row of one policy, in the order of :data:`COLUMNS`; from the third column on, of the frozen setting."""
    fluid, events = row.fluid, row.events
    return (
        change(fluid),
        change(events),
        f"{fluid.billed_hours:,.0f}",
        f"{events.billed_hours:,.0f}",
        f"{100 * fluid.attainment:.2f} %",
        f"{100 * events.attainment:.2f} %",
        f"{100 * events.worst_span:.1f} %",
        f"{events.delay_p99_s:.0f} s",
        f"{events.actions_per_hour:.1f}",
        f"{events.flaps_per_hour:.1f}",
    )


def clear(pair: Pair) -> bool:
    """Whether the engines rank two policies differently by more than a near tie."""
    return min(abs(pair.fluid), abs(pair.events)) >= NEAR


def verdict(found: Confirmation) -> str:
    """Sentence that says whether the ranking is confirmed."""
    if found.tau is None:
        return "Single requests cannot confirm a ranking: fewer than two policies met the objective in both engines."
    tau = f"Kendall's tau is {found.tau:.2f}"
    if not found.swapped:
        return (
            f"Single requests confirm the ranking: all {found.pairs} pairs of policies stand in the same order; {tau}."
        )
    clearly = sum(clear(pair) for pair in found.swapped)
    swapped = f"{len(found.swapped)} of {found.pairs} pairs of policies stand in another order"
    if not clearly:
        return f"Single requests confirm the ranking but for near ties: {swapped}, none clearly; {tau}."
    return f"Single requests do not confirm the whole ranking: {swapped}, {clearly} of them clearly; {tau}."


def swaps(found: Confirmation) -> list[str]:
    """The pairs that change places; clear ones first."""
    pairs = sorted(found.swapped, key=lambda pair: -min(abs(pair.fluid), abs(pair.events)))
    return [
        f"{pair.first} against {pair.second}: {100 * pair.fluid:+.1f} % fluid, {100 * pair.events:+.1f} % with single "
        "requests" + ("" if clear(pair) else " (a near tie)")
        for pair in pairs
    ]


def method(found: Confirmation) -> str:
    """How the result was measured."""
    days = ", ".join(f"{1 + begin / 86_400:.4g}" for begin in found.starts_s)
    hours = f"{found.window_s / 3600:.4g} h each from day {days} of the data on"
    return (
        f"Second engine: {found.requests:,} single requests ({hours}) wait in one queue for replicas with cold starts "
        "and drains of their own. A replica reads one prompt at a time and serves up to "
        f"{found.slots} requests in a batch, {100 * found.fixed:.0f} % of whose full step does not depend on how many "
        f"they are; a wait lasts until a replica begins with a request, and {found.unit:.3g} requests in a replica are "
        "a concurrency of 1. Settings are those that the fluid engine chose; costs at equal service are interpolated "
        "between neighbours of them, in both engines on the same arrivals (first seed). Policies that steer by "
        "concurrency see a batch grow faster than its load and each waiting request in full, which the fluid engine "
        "does not show, and were not tuned for that. A pair is a near tie where its "
        f"costs differ by less than {100 * NEAR:.0f} % in one engine."
    )
