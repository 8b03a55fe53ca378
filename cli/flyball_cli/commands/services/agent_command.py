"""``flyball agent``."""

from pathlib import Path

import click

from flyball_cli.lazily import ImportWhenUsed
from flyball_cli.options import (
    BEAT_S,
    Pulse,
    common,
    configured,
    health_option,
    load,
    on_hangup,
    until_signal,
    wait_beating,
)


@click.command("agent")
@common
@health_option
@click.option("--once", is_flag=True, help="Measure once, print a table, send nothing.")
def command(
    config_path: Path | None, bootstrap: str | None, log_level: str, health_file: Path | None, once: bool
) -> None:
    """Measure this node and send its telemetry, events and inventory to Kafka.

    A change of the configuration's file is loaded while the agent runs, and at once on SIGHUP; one that cannot be
    is refused, and the old one stays.

    \b
    Examples:
      flyball agent --once
      flyball agent --config /etc/flyball/flyball.yaml --bootstrap kafka-1:9092
    """
    lighten()
    from flyball_collectors.agent.notify import Notifier
    from flyball_collectors.agent.reload import ConfigWatch
    from flyball_collectors.agent.run import read_once, run_agent
    from flyball_contracts.kafka.preflight import preflight

    config = configured(config_path, bootstrap, log_level)
    if once:
        from rich.console import Console

        from flyball_collectors.agent.diagnosis.table import render

        seen = read_once(config)
        console = Console()
        console.print(render(seen.readings, seen.inventory, console.width))
        return
    watch = ConfigWatch(config_path, lambda: load(config_path, bootstrap)) if config_path else None
    pulse, notifier = Pulse(health_file), Notifier()

    def beat() -> None:
        pulse.beat()
        notifier.beat()

    with until_signal() as stop, on_hangup(watch.request if watch else lambda: None):

        def wait(seconds: float) -> bool:
            ends = wait_beating(seconds, stop, beat, min(BEAT_S, notifier.beat_s or BEAT_S))
            if ends:
                notifier.stopping()
            return ends

        preflight(config, "agent", stop=stop, patient=True)
        report = run_agent(config, stop=stop, wait=wait, source=watch)
    click.echo(
        f"{report.frames} frames in {report.ticks} ticks; {report.delivered} messages delivered, "
        f"{report.spooled} on disk, {report.dropped} dropped",
        err=True,
    )


def lighten() -> None:
    """Keep the process small: call it before NumPy, the Kafka client and the first threads."""
    # Only confluent_kafka's asyncio clients, which are not used, need asyncio; the others are NumPy's help texts.
    ImportWhenUsed("asyncio", "numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars").install()
    from flyball_collectors.agent.memory import share_one_arena

    share_one_arena()
