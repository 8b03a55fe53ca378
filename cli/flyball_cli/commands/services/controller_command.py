"""``flyball controller``."""

from pathlib import Path

import click

from flyball_cli.options import Pulse, health_option, until_signal, with_config
from flyball_contracts.config import Config


@click.command("controller")
@with_config
@health_option
def command(config: Config, health_file: Path | None) -> None:
    """Publish what a Kubernetes cluster shows: its nodes and pods, and the workloads that it declares.

    Objects declare workloads by annotations and by the policies of infra/kubernetes/crds.yaml, whose status says what
    became of them. Nothing else is written to the cluster.

    \b
    Example:
      flyball controller --config /etc/flyball/flyball.yaml
    """
    from flyball_actuators.controller.service import run_controller
    from flyball_contracts.kafka.preflight import preflight

    with until_signal() as stop:
        preflight(config, "controller", stop=stop)
        report = run_controller(config, stop=stop, beat=Pulse(health_file).beat)
    click.echo(
        f"{report.inventories} inventories, {report.gone} nodes gone, {report.workloads} workloads, "
        f"{report.statuses} statuses",
        err=True,
    )
