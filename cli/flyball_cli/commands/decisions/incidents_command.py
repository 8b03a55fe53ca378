"""``flyball incidents``."""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from flyball_cli.options import DAY_S, Finite, health_option, until_signal, with_config
from flyball_cli.terminal import unwrapped_console
from flyball_contracts.config import Config
from flyball_contracts.records import Cause
from flyball_contracts.records.events import Severity

DEFAULT_DAYS = 7.0


@click.group("incidents")
def command() -> None:
    """List incidents, and respond: acknowledge, silence or label them.

    \b
    Examples:
      flyball incidents list
      flyball incidents show 3f2a
      flyball incidents ack 3f2a --reason "on it"
      flyball incidents silence --cell eu-1 --node n7 --for 7200 --reason moved
      flyball incidents label 3f2a --false --reason "benchmark of ours"
    """


def _looking(function: Callable[..., Any]) -> Callable[..., Any]:
    option = click.option("--since", type=Finite(0), default=DEFAULT_DAYS, show_default=True, help="Days to look back.")
    return option(function)


def _answering(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--reason", required=True, help="Kept with it; whoever reads it later wants to know."),
        click.option("--by", help="Who says it; user and host by default."),
    ):
        function = option(function)
    return function


@command.command("list")
@click.option("--all", "ended", is_flag=True, help="Those that have ended, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as JSON instead of a table.")
@_looking
@with_config
def list_(ended: bool, as_json: bool, since: float, config: Config) -> None:
    """List open incidents, the worst first; silenced ones come after the others."""
    from flyball_cli.explain.records import read_incidents
    from flyball_cli.incidents.listing import tabulated
    from flyball_cli.incidents.topic import in_order
    from flyball_contracts.kafka.preflight import preflight

    preflight(config, "responder")
    found = [one for one in in_order(read_incidents(config.kafka, since * DAY_S)) if ended or one.status == "open"]
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n")
    elif found:
        unwrapped_console().print(tabulated(found))
    else:
        click.echo("nothing is wrong" if not ended else f"there was no incident in {since:g} days")


@command.command("show")
@click.argument("incident")
@_looking
@with_config
def show(incident: str, since: float, config: Config) -> None:
    """Show everything known of an INCIDENT: its id, or the beginning of it."""
    from flyball_cli.incidents.listing import described
    from flyball_cli.incidents.topic import find

    for line in described(find(config.kafka, incident, since * DAY_S)):
        click.echo(line)


@command.command("ack")
@click.argument("incident")
@click.option("--remove", is_flag=True, help="No person works on it any more.")
@_answering
@_looking
@with_config
def ack(incident: str, remove: bool, reason: str, by: str | None, since: float, config: Config) -> None:
    """Acknowledge an INCIDENT, so that others see that an operator works on it. Decisions continue."""
    from flyball_cli.controls import who
    from flyball_cli.incidents.topic import answer, find
    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.records import Acknowledgement

    preflight(config, "responder")
    one, name = find(config.kafka, incident, since * DAY_S), by or who()
    answer(
        config.kafka,
        Acknowledgement(cell=one.cell, time_ns=time.time_ns(), by=name, reason=reason, incident=one.id, removed=remove),
    )
    click.echo(f"{one.id}: {'no person works on it' if remove else f'{name} has it'}")


@command.command("label")
@click.argument("incident")
@click.option("--true/--false", "is_true", required=True, default=None, help="Was something wrong?")
@_answering
@_looking
@with_config
def label(incident: str, is_true: bool, reason: str, by: str | None, since: float, config: Config) -> None:
    """Say whether an INCIDENT was true. Statistical limits of its cause and model of GPU follow, within bounds."""
    from flyball_cli.controls import who
    from flyball_cli.incidents.topic import answer, find
    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.records import Label

    preflight(config, "responder")
    one = find(config.kafka, incident, since * DAY_S)
    response = Label(
        cell=one.cell, time_ns=time.time_ns(), by=by or who(), reason=reason, incident=one.id, cause=one.cause,
        true=is_true, model=one.model,
    )  # fmt: skip
    answer(config.kafka, response)
    rule = "" if any(s.statistical for s in one.symptoms) else "; it rests on rules, whose limits do not move"
    click.echo(f"{one.id}: {one.cause}{f' on {one.model}' if one.model else ''} was {str(is_true).lower()}{rule}")


@command.command("silence")
@click.option("--cell", required=True, help="Its cell.")
@click.option("--name", help="Under which it can be ended; made from the time by default.")
@click.option("--incident", default="*", help="Beginning of its id, or a glob pattern like each of the following.")
@click.option("--cause", type=click.Choice(["*", *get_args(Cause)]), default="*", help="Cause.")
@click.option("--node", default="*", help="Nodes; an incident of several matches where all do.")
@click.option("--device", default="*", help="GPUs.")
@click.option("--workload", default="*", help="Workloads.")
@click.option("--for", "for_s", type=Finite(1), required=True, help="Seconds that it holds.")
@click.option("--from", "from_", type=click.DateTime(), help="When it begins, UTC; now by default.")
@_answering
@with_config
def silence(
    cell: str, name: str | None, for_s: float, from_: datetime | None, reason: str, by: str | None,
    config: Config, **matched: Any,
) -> None:  # fmt: skip
    """List matching incidents only: no decision follows, and no notification.

    With --from it is a maintenance window.

    \b
    Example:
      flyball incidents silence --cell eu-1 --node 'rack-7-*' --from 2027-01-09T22:00:00 --for 14400 --reason "firmware"
    """
    from flyball_cli.controls import who
    from flyball_cli.incidents.listing import moment
    from flyball_cli.incidents.topic import answer, find, silences
    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.records import Silence

    if set(matched.values()) == {"*"}:
        raise click.UsageError(
            "this would silence the whole cell; pass --incident, --cause, --node, --device or --workload"
        )
    now_ns = time.time_ns()
    starts_ns = now_ns if from_ is None else round(from_.replace(tzinfo=UTC).timestamp() * 1e9)
    ends_ns = starts_ns + round(for_s * 1e9)
    if ends_ns <= now_ns:
        raise click.UsageError(
            f"it would have ended at {moment(ends_ns)} UTC, and now is {moment(now_ns)}; --from is in UTC"
        )
    preflight(config, "responder")
    if not any(sign in matched["incident"] for sign in "*?["):
        one = find(config.kafka, matched["incident"], DEFAULT_DAYS * DAY_S)
        if one.cell != cell:
            raise click.UsageError(f"incident {one.id} is in cell {one.cell!r}; pass --cell {one.cell!r}")
        matched["incident"] = one.id
    unique = f"{moment(now_ns).replace(' ', 'T')}.{now_ns // 1000 % 10**6:06}"  # two in a second are two
    response = Silence(
        cell=cell, time_ns=now_ns, by=by or who(), reason=reason, name=name or unique, starts_ns=starts_ns,
        ends_ns=ends_ns, **matched,
    )  # fmt: skip
    known = [held for held in silences(config.kafka) if held.key == response.key] if name else []
    for held in known:
        if held.ends_ns > now_ns and any(getattr(held, field) != value for field, value in matched.items()):
            raise click.UsageError(
                f"cell {cell!r} has another silence {name!r}, by {held.by} until {moment(held.ends_ns)} UTC, which "
                "this would replace; pass another --name, or end that one with flyball incidents unsilence"
            )
    answer(config.kafka, response)
    click.echo(
        f"silence {response.name!r} holds until {moment(response.ends_ns)} UTC; to end it before: "
        f"flyball incidents unsilence {response.name!r} --cell {cell!r}"
    )


@command.command("silences")
@with_config
def silences_(config: Config) -> None:
    """List silences that hold or will hold."""
    from flyball_cli.incidents.listing import of_silences
    from flyball_cli.incidents.topic import silences

    table = of_silences(silences(config.kafka), time.time_ns())
    if table.row_count:
        unwrapped_console().print(table)
    else:
        click.echo("nothing is silenced")


@command.command("unsilence")
@click.argument("name")
@click.option("--cell", required=True, help="Its cell.")
@click.option("--by", help="Who ends it; user and host by default.")
@with_config
def unsilence(name: str, cell: str, by: str | None, config: Config) -> None:
    """End the silence NAME before its time."""
    from flyball_cli.controls import who
    from flyball_cli.incidents.topic import answer, silences
    from flyball_contracts.kafka.preflight import preflight

    preflight(config, "responder")
    known = {one.name: one for one in silences(config.kafka) if one.cell == cell}
    if name not in known:
        names = ", ".join(map(repr, sorted(known))) or "none"
        raise click.UsageError(f"cell {cell!r} has no silence {name!r}; it has {names}")
    answer(config.kafka, msgspec.structs.replace(known[name], time_ns=time.time_ns(), by=by or who(), removed=True))
    click.echo(f"silence {name!r} of cell {cell!r} has ended")


@command.command("nodes")
@click.option("--all", "back", is_flag=True, help="Those that are back, too.")
@_looking
@with_config
def nodes(back: bool, since: float, config: Config) -> None:
    """List nodes that are suspect, watched or out, and why."""
    from flyball_cli.explain.records import read_conditions
    from flyball_cli.incidents.listing import of_nodes

    found = [one for one in read_conditions(config.kafka, since * DAY_S).values() if back or one.condition != "back"]
    if found:
        unwrapped_console().print(of_nodes(found))
    else:
        click.echo("no node is cordoned")


@command.command("readmit")
@click.argument("node")
@click.option("--cell", required=True, help="Its cell.")
@click.option("--evidence", required=True, help="How you know that it is well, like the check that it passed.")
@click.option("--by", help="Who says it; user and host by default.")
@with_config
def readmit(node: str, cell: str, evidence: str, by: str | None, config: Config) -> None:
    """Let NODE take work again: earlier faults are cleared, later ones count.

    \b
    Example:
      flyball incidents readmit gpu-017 --cell eu-1 --evidence "dcgmi diag -r 3 passed after the GPU was replaced"
    """
    from flyball_cli.controls import who
    from flyball_cli.incidents.topic import answer
    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.records import Readmission

    if not evidence.strip():
        raise click.BadParameter("is empty; a quarantine ends only with evidence", param_hint="--evidence")
    preflight(config, "responder")
    response = Readmission(cell=cell, time_ns=time.time_ns(), by=by or who(), node=node, evidence=evidence.strip())
    answer(config.kafka, response)
    click.echo(f"{node} takes work again once the worker has read this; `flyball incidents nodes --all` shows it")


@command.command("check")
@click.argument("node")
@click.option("--cell", required=True, help="Its cell.")
@click.option("--image", required=True, help="Image with the check, for example NVIDIA's DCGM.")
@click.option("--check", "check_line", default="dcgmi diag -r 3", show_default=True, help="Must end with status 0.")
@click.option("--flyball-image", required=True, help="Image with this command, to readmit the node afterwards.")
@click.option("--gpus", type=click.IntRange(1), default=8, show_default=True, help="GPUs of the node.")
@click.option("--namespace", default="default", show_default=True, help="Namespace of the job.")
@with_config
def check(
    node: str, cell: str, image: str, check_line: str, flyball_image: str, gpus: int, namespace: str,
    config: Config,
) -> None:  # fmt: skip
    """Print a Kubernetes Job that checks a cordoned NODE, and readmits it to Flyball where the check passes.

    It names its node itself, so the scheduler's cordon does not hold it back. Where it fails, the node stays out.

    \b
    Example:
      flyball incidents check gpu-017 --cell eu-1 --image DCGM --flyball-image FLYBALL --bootstrap kafka:9092 |
        kubectl apply -f -
    """
    from flyball_cli.incidents.burn_in import job_yaml

    if config.kafka.client:
        raise click.UsageError(
            "the broker wants what kafka.client has, which this job would not have; run the check by hand, and then "
            "flyball incidents readmit"
        )
    click.echo(
        job_yaml(node, cell, image, check_line, flyball_image, gpus, namespace, config.kafka.bootstrap), nl=False
    )


@command.command("notify")
@click.option("--alertmanager", "alertmanagers", multiple=True, metavar="URL", help="An Alertmanager, API v2.")
@click.option("--webhook", "webhooks", multiple=True, metavar="URL", help="Takes what Alertmanager sends to webhooks.")
@click.option("--least", type=click.Choice(["info", "warning", "critical"]), default="warning", show_default=True,
              help="Least severity that is sent.")  # fmt: skip
@click.option("--page", default="", metavar="URL", help="Where `flyball dashboard` is served, for links.")
@click.option("--token-env", metavar="NAME", help="Variable of the environment with the bearer token for all of them.")
@click.option("--once", is_flag=True, help="End when all that there is was delivered.")
@health_option
@with_config
def notify(
    alertmanagers: tuple[str, ...], webhooks: tuple[str, ...], least: Severity, page: str, token_env: str | None,
    once: bool, health_file: Path | None, config: Config,
) -> None:  # fmt: skip
    """Send incidents to Alertmanager and webhooks, until stopped; each at least once, silenced ones not at all.

    Run one; after a restart it repeats open incidents, and those that may have been lost. An incident that a receiver
    rejects for good (400, 413 or 422) goes to the dead letters, and the others continue; other failures are retried.

    \b
    Example:
      flyball incidents notify --alertmanager http://alertmanager:9093 --page https://flyball.example
    """
    import os

    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.security.secret import secret
    from flyball_streams.notify import run_notifier
    from flyball_streams.notify.targets import Alertmanager, Target, Webhook

    if not alertmanagers and not webhooks:
        raise click.UsageError("no receiver to notify: pass --alertmanager URL or --webhook URL")
    token = secret(os.environ, token_env, "--token-env", in_header=True) if token_env else ""
    headers = {"Authorization": f"Bearer {token}"} if token else None
    targets: list[Target] = [
        *(Alertmanager(url, page, headers) for url in alertmanagers),
        *(Webhook(url, page, headers) for url in webhooks),
    ]
    preflight(config, "notifier")
    with until_signal(health_file) as stop:
        report = run_notifier(config.kafka, targets, stop=stop, least=least, once=once)
    refused = f"; {report.refused} incidents were refused for good and are in flyball.dlq.v1" if report.refused else ""
    click.echo(f"{report.delivered} alerts were delivered{refused}")


@command.command("rules")
def rules() -> None:
    """Print alert rules for Prometheus, on the agents' metrics: an independent check if no worker runs."""
    from flyball_cli.incidents.rules import rules_yaml

    click.echo(rules_yaml(), nl=False)
