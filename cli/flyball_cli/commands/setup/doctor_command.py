"""``flyball doctor``."""

import logging
import os
import platform
import sys
from collections import Counter
from pathlib import Path

import click
import msgspec
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flyball_cli.extras import missing, remedy
from flyball_cli.options import Finite, common, configured
from flyball_contracts.burn_in import GPUS, RESULT
from flyball_contracts.config import Config

PARTS = ("agent", "otlp", "worker", "dashboard")


@click.command("doctor")
@click.option("--nvml", is_flag=True, help="Read every GPU a second time through nvidia-ml-py, and compare.")
@click.option("--burn-in", "burn_in_s", type=Finite(0), metavar="SECONDS", help="Try the GPUs for so long instead.")
@click.option("--gpus", type=click.IntRange(0), envvar=GPUS, default=0, help="GPUs that there must be for a burn-in.")
@common
def command(
    burn_in_s: float | None, gpus: int, config_path: Path | None, bootstrap: str | None, log_level: str, *, nvml: bool
) -> None:
    """Say what this node can and cannot measure, which parts are installed, and whether the broker answers.

    Exits 0 even when something is missing: it explains, it does not judge. With --nvml it judges the agent: value
    beside value of NVIDIA's own binding, and exit status 1 where they differ or the agent lacks one. With --burn-in it
    loads every GPU that jax sees (the CPU, where --gpus requests none and there is none): matrix products, memory,
    transfers, and sums over all GPUs, each compared exactly. It prints one line of JSON with rates, and exits 1 where
    anything is wrong or has not ended after five minutes.

    \b
    Example:
      flyball doctor --bootstrap kafka-1:9092
      flyball doctor --nvml
      flyball doctor --burn-in 60 --gpus 8
    """
    if nvml and burn_in_s is not None:
        raise click.UsageError("--nvml and --burn-in are two checks; run one after the other")
    if (
        gpus
        and burn_in_s is None
        and click.get_current_context().get_parameter_source("gpus") is ParameterSource.COMMANDLINE
    ):
        raise click.UsageError("--gpus is for a burn-in; add --burn-in SECONDS")
    if burn_in_s is not None:
        sys.exit(_burn_in(burn_in_s, gpus))
    if nvml:
        sys.exit(_compare(configured(config_path, bootstrap, log_level)))
    from flyball_collectors.agent.diagnosis.doctor import Finding, explain

    config = configured(config_path, bootstrap, log_level)
    findings = [Finding("python", True, f"{platform.python_version()} on {sys.platform}")]
    for extra in PARTS:
        lacking = missing(extra)
        state = f"not installed: {', '.join(lacking)}" if lacking else "installed"
        findings.append(Finding(f"flyball[{extra}]", not lacking, state, remedy(extra) if lacking else ""))
    findings += explain(config)
    findings.append(Finding("kafka", *_broker(config.kafka.bootstrap, config.kafka.client)))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(style="bold")
    table.add_column(overflow="fold")  # a path that is cut off is of no use
    for one in findings:
        detail = Text(one.detail)
        if one.remedy:
            detail.append(f"\n→ {one.remedy}", "cyan")
        table.add_row("[green]ok[/]" if one.ok else "[yellow]no[/]", Text(one.name), detail)
    Console().print(table)


def _burn_in(seconds: float, gpus: int) -> int:
    """Print the result, and write it to the file that the platform requests; exit status 1 for an unhealthy device."""
    from flyball_cli.burn_in.run import burn_in, is_stuck

    found = burn_in(seconds, gpus)
    line = msgspec.json.encode(found).decode()
    click.echo(line)
    if path := os.environ.get(RESULT):
        try:
            Path(path).write_text(line + "\n")
        except OSError as error:
            raise click.UsageError(f"{RESULT}: {path}: {error}") from error
    if is_stuck():
        sys.stdout.flush()
        os._exit(1)
    return int(not found.passed)


def _compare(config: Config) -> int:
    """Print values side by side; exit status 1 if they differ."""
    from flyball_collectors.agent.diagnosis.doctor import compare_gpus
    from flyball_collectors.agent.diagnosis.quantity import number

    rows, others = compare_gpus(config)
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("GPU", "value", "unit"):
        table.add_column(title, no_wrap=title != "value", overflow="fold")
    for title in ("agent", "nvidia-ml-py", ""):
        table.add_column(title, no_wrap=True, justify="right" if title else "left")
    for one in rows:
        texts = [number(value) if value == value else "-" for value in (one.ours, one.theirs)]
        colour = "green" if one.ok else "red"
        table.add_row(str(one.gpu), Text(one.key), one.unit, *texts, f"[{colour}]{one.verdict}[/]")
    console = Console()
    console.print(table)
    for other in others:
        console.print(Text(other, style="red"))
    counts = Counter(one.verdict for one in rows)
    console.print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())), style="bold")
    return int(bool(others) or not all(one.ok for one in rows))


def _broker(bootstrap: str, client: dict[str, str]) -> tuple[bool, str, str]:
    from confluent_kafka import KafkaException

    from flyball_contracts.kafka import open_admin
    from flyball_contracts.topics import TOPICS

    if not bootstrap:
        return True, "switched off: kafka.bootstrap is empty", ""
    admin = open_admin(
        {"bootstrap.servers": bootstrap, **client}, logging.getLogger(__name__), "doctor", log_errors=False
    )
    try:
        known = admin.list_topics(timeout=3.0).topics
    except KafkaException:
        return False, f"no broker answers at {bootstrap}", "start one, or pass --bootstrap HOST:PORT"
    missing = [name for name in TOPICS if name not in known]
    if missing:
        return False, f"{bootstrap} lacks {len(missing)} of {len(TOPICS)} topics", "flyball topics --create"
    return True, f"{bootstrap} answers and has all {len(TOPICS)} topics", ""
