"""``flyball doctor``."""

import logging
import platform
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flyball_cli.options import common, configured

PARTS = {"agent": "prometheus_client", "otlp": "opentelemetry.proto", "worker": "faust", "dashboard": "nicegui"}


@click.command("doctor")
@common
def command(config_path: Path | None, bootstrap: str | None, log_level: str) -> None:
    """Say what this node can and cannot measure, which parts are installed, and whether the broker answers.

    Exits 0 even when something is missing: it explains, it does not judge.

    \b
    Example:
      flyball doctor --bootstrap kafka-1:9092
    """
    from flyball_collectors.agent.doctor import Finding, explain
    from flyball_collectors.export import installed

    config = configured(config_path, bootstrap, log_level)
    findings = [Finding("python", True, f"{platform.python_version()} on {sys.platform}")]
    for extra, module in PARTS.items():
        found = installed(module)
        state, remedy = ("installed", "") if found else ("not installed", f"pip install 'flyball[{extra}]'")
        findings.append(Finding(f"flyball[{extra}]", found, state, remedy))
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


def _broker(bootstrap: str, client: dict[str, str]) -> tuple[bool, str, str]:
    from confluent_kafka import KafkaException

    from flyball_contracts.kafka import open_admin
    from flyball_contracts.topics import TOPICS

    if not bootstrap:
        return True, "switched off: kafka.bootstrap is empty", ""
    admin = open_admin({"bootstrap.servers": bootstrap, **client}, logging.getLogger(__name__), "doctor", aloud=False)
    try:
        known = admin.list_topics(timeout=3.0).topics
    except KafkaException:
        return False, f"no broker answers at {bootstrap}", "start one, or pass --bootstrap HOST:PORT"
    missing = [name for name in TOPICS if name not in known]
    if missing:
        return False, f"{bootstrap} lacks {len(missing)} of {len(TOPICS)} topics", "flyball topics --create"
    return True, f"{bootstrap} answers and has all {len(TOPICS)} topics", ""
