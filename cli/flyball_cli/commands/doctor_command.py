"""``flyball doctor``."""

import logging
import platform
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

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
    from flyball_collectors.agent.doctor import explain
    from flyball_collectors.export import installed

    config = configured(config_path, bootstrap, log_level)
    table = Table("", "what", "finding", "remedy", box=None, header_style="bold")
    table.add_row(_mark(True), "python", f"{platform.python_version()} on {sys.platform}", "")
    for extra, module in PARTS.items():
        found = installed(module)
        remedy = "" if found else f"pip install 'flyball[{extra}]'"
        state = "installed" if found else "not installed"
        table.add_row(_mark(found), escape(f"flyball[{extra}]"), state, escape(remedy))
    for finding in explain(config):
        table.add_row(_mark(finding.ok), escape(finding.name), escape(finding.detail), escape(finding.remedy))
    ok, detail, remedy = _broker(config.kafka.bootstrap, config.kafka.client)
    table.add_row(_mark(ok), "kafka", detail, remedy)
    Console().print(table)


def _broker(bootstrap: str, client: dict[str, str]) -> tuple[bool, str, str]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from flyball_contracts.kafka_log import ClientLog
    from flyball_contracts.topics import TOPICS

    if not bootstrap:
        return True, "switched off: kafka.bootstrap is empty", ""
    told = ClientLog(logging.getLogger(__name__), "doctor", bootstrap)
    try:
        known = AdminClient({"bootstrap.servers": bootstrap, **client}, logger=told).list_topics(timeout=3.0).topics
    except KafkaException:
        return False, f"no broker answers at {bootstrap}", "start one, or pass --bootstrap HOST:PORT"
    missing = [name for name in TOPICS if name not in known]
    if missing:
        return False, f"{bootstrap} lacks {len(missing)} of {len(TOPICS)} topics", "flyball topics --create"
    return True, f"{bootstrap} answers and has all {len(TOPICS)} topics", ""


def _mark(ok: bool) -> str:
    return "[green]ok[/]" if ok else "[yellow]no[/]"
