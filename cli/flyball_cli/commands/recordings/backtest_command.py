"""``flyball backtest``."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from flyball_cli.extras import need
from flyball_cli.options import Finite, progress_bar
from flyball_cli.outputs import force_option, output, written

if TYPE_CHECKING:
    from flyball_contracts.records import WorkloadSpec
    from flyball_streams.backtest.demands.demand import Demand
    from flyball_streams.backtest.study import Study

POLICIES = "ours"
BASELINES = "hpa,hpa_load,hpa_queue,keda,kpa,kpa_held,dynamo,static,oracle"
DELAY_S, SHARE, COLD_START_S = 5.0, 0.99, 300.0
ENGINES = ("fluid", "events", "both")


class Options(NamedTuple):
    """The options as they were given."""

    recording: Path
    workload: str | None
    policies: str
    baselines: str
    slo: tuple[float, float] | None
    cold_start: float | None
    cold_start_spread: float
    fail_share: float
    lost_share: float
    price: float
    watts: float
    carbon: float
    engine: str
    safety: bool
    quick: bool
    json_out: Path | None
    html_out: Path | None
    force: bool


@click.command("backtest")
@click.argument("recording", type=click.Path(path_type=Path))
@click.option("--workload", help="Needed where the recording has several.")
@click.option("--policy", "policies", default=POLICIES, show_default=True, help="Policies to judge, by comma.")
@click.option(
    "--baseline", "baselines", default=BASELINES, show_default=True, help="Tuned alike; the first is compared with."
)
@click.option(
    "--slo", nargs=2, type=Finite(0), metavar="SHARE SECONDS", help="Share that waits no longer. [default: 0.99 5]"
)
@click.option("--cold-start", type=Finite(1), metavar="SECONDS", help="From order to ready. [default: 300]")
@click.option("--cold-start-spread", type=Finite(0, 2), default=0.0, help="Sigma of its lognormal.")
@click.option("--fail-share", type=Finite(0, 0.9), default=0.0, help="Orders that never become ready.")
@click.option("--lost-share", type=Finite(0, 0.9), default=0.0, help="Telemetry samples that are lost.")
@click.option("--price", type=Finite(0), default=2.5, show_default=True, help="USD per replica-hour.")
@click.option("--watts", type=Finite(0), default=500.0, show_default=True, help="Power of a billed replica.")
@click.option("--carbon", type=Finite(0), default=400.0, show_default=True, help="Grid, gCO2e/kWh.")
@click.option(
    "--engine",
    type=click.Choice(ENGINES),
    default=ENGINES[0],
    show_default=True,
    help="Fluid; single requests (events); or fluid, confirmed by single requests on some days (both).",
)
@click.option("--safety", is_flag=True, help="Also put faults into forecasts, metrics, orders and the controller.")
@click.option("--quick", is_flag=True, help="A quarter of the settings.")
@click.option("--json", "json_out", type=click.Path(path_type=Path), help="Write all figures here.")
@click.option("--html", "html_out", type=click.Path(path_type=Path), help="Write a page that stands alone here.")
@force_option
def command(**options: Any) -> None:
    """Try policies on the demand of RECORDING, and compare what they cost at equal service.

    Every policy is tuned on the first half with the same number of settings and measured on the second. Objective and
    cold start are the workload's own where the recording says them.

    \b
    Examples:
      flyball backtest monday.parquet --workload chat --html chat.html
      flyball backtest monday.parquet --workload chat --slo 0.99 5 --engine both
    """
    given = Options(**options)
    if given.slo is not None and not (0 < given.slo[0] < 1 and given.slo[1] >= 1):
        text = f"{given.slo[0]:g} {given.slo[1]:g}"
        raise click.BadParameter(f"{text}: give a share between 0 and 1, and seconds from 1 on", param_hint="--slo")
    tried = _listed(given.baselines)
    if not tried:
        raise click.UsageError("--baseline names no policy; one is needed to compare with")
    json_out = None if given.json_out is None else output(given.json_out, force=given.force, beside=[given.recording])
    others = [given.recording, given.json_out]
    html_out = None if given.html_out is None else output(given.html_out, force=given.force, beside=others)
    need("worker", *(() if html_out is None else ("backtest",)))

    # These modules take seconds to import: invalid options are refused before, where possible.
    from flyball_streams.backtest.policies.groups import OURS, POLICY_GROUPS
    from flyball_streams.backtest.run import Scenario
    from flyball_streams.backtest.study import Prices, StudyConfig, study

    judged, tried = ([OURS if key == "ours" else key for key in keys] for keys in (_listed(given.policies), tried))
    for key in (*judged, *tried):
        if key not in POLICY_GROUPS:
            raise click.UsageError(f"there is no policy {key!r}; known: ours, {', '.join(POLICY_GROUPS)}")
    demand, spec = _recorded(given.recording, given.workload)
    spec_slo = None if spec.objective is None else (spec.objective.attainment, spec.objective.delay_s)
    share, delay_s = given.slo or spec_slo or (SHARE, DELAY_S)
    scenario = Scenario(
        given.cold_start or spec.cold_start_s or COLD_START_S,
        (max(1, round(delay_s)),),  # demand is by the second
        given.cold_start_spread,
        given.fail_share,
        given.lost_share,
        # A policy without any replica would never see demand again.
        least=max(1, spec.min_replicas),
        most=max(1, spec.min_replicas, spec.max_replicas),
    )
    prices = Prices(usd_per_replica_hour=given.price, watts_per_replica=given.watts, carbon_g_per_kwh=given.carbon)
    policy_groups = tuple(dict.fromkeys((*judged, *tried)))
    question = StudyConfig(
        policy_groups, tried[0], share, scenario, prices, 4 if given.quick else 1, given.safety, given.engine
    )
    with progress_bar(f"backtesting {demand.name}") as progress:
        try:
            found = study([demand], question, progress)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    try:  # the result took hours: show it even if a file cannot be written, and write the files before that
        if json_out is not None:
            with written(json_out) as file:
                file.write(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        if html_out is not None:
            from flyball_streams.backtest.report.page import page

            with written(html_out) as file:
                file.write(page(found).encode())
    finally:
        _show(found)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _recorded(path: Path, workload: str | None) -> tuple["Demand", "WorkloadSpec"]:
    from flyball_streams.backtest.demands.recorded import read_recording

    with progress_bar("reading the recording") as progress:
        found = read_recording(path, progress=progress, workload=workload)
    if workload is None and len(found) == 1:
        workload = next(iter(found))
    if workload is None or workload not in found:
        lead = "choose one with --workload" if workload is None else f"there is no workload {workload!r}"
        raise click.UsageError(f"{path}: {lead}; known: {', '.join(found)}")
    return found[workload], found.specs[workload]


def _show(study: "Study") -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from flyball_streams.backtest.events import text as single
    from flyball_streams.backtest.report.text import COLUMNS, FAULT_COLUMNS, entries, fault_entries, headline, method
    from flyball_streams.backtest.safety import TITLES

    console = Console(width=None if sys.stdout.isatty() else 132)
    console.print(f"[bold]{study.name}[/]  {study.about}", highlight=False)
    console.print(headline(study), highlight=False)

    def table_of(left: int, *names: str) -> Table:
        columns = (Column(name, justify="left" if i < left else "right", no_wrap=True) for i, name in enumerate(names))
        return Table(*columns, box=None, header_style="bold", pad_edge=False)

    table = table_of(1, "policy", *COLUMNS)
    for row in study.rows:
        table.add_row(row.title, *entries(row), style="bold" if row.ours else None)
    console.print(table)
    if study.safety:
        titles = {row.key: row.title for row in study.rows}
        faults = table_of(2, "policy", "fault", *FAULT_COLUMNS)
        for o in study.safety:
            faults.add_row(titles[o.policy], TITLES[o.fault], *fault_entries(o), style=None if o.passed else "red")
        console.print(faults)
    if study.confirmed is not None:
        console.print(single.verdict(study.confirmed), highlight=False)
        confirmed = table_of(1, "policy", *single.COLUMNS)
        for each in study.confirmed.rows:
            confirmed.add_row(each.title, *single.entries(each), style="bold" if each.ours else None)
        console.print(confirmed)
        for line in single.swaps(study.confirmed):
            console.print(line, highlight=False)
    for line in method(study):
        console.print(line, style="dim", highlight=False)
