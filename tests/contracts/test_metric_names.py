"""Metric names are OpenTelemetry's, or lie in a namespace of their own."""

import re

from flyball_contracts.metrics import LAYOUTS

OTEL = ("hw", "system", "container", "gen_ai")
OURS = ("nvidia.gpu", "flyball")
NAMES = {metric.name for layout in LAYOUTS.values() for metric in layout.metrics}


def test_names_follow_the_grammar_and_lie_in_a_known_namespace() -> None:
    assert [name for name in NAMES if not re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z0-9][a-z0-9_]*)+", name)] == []
    assert [name for name in NAMES if not name.startswith(tuple(f"{space}." for space in (*OTEL, *OURS)))] == []


def test_what_opentelemetry_names_has_its_name() -> None:
    conventions = {
        *("hw.gpu.utilization", "hw.gpu.memory.utilization", "hw.gpu.memory.usage", "hw.gpu.memory.limit", "hw.gpu.io"),
        *("hw.power", "hw.energy", "hw.temperature", "hw.errors", "hw.status"),
        *("system.cpu.utilization", "system.cpu.time", "system.memory.usage", "system.memory.utilization"),
        *("system.disk.io", "system.network.io", "system.network.errors", "system.paging.usage", "system.uptime"),
        *("container.cpu.time", "container.memory.usage"),
        *("gen_ai.server.time_to_first_token", "gen_ai.server.time_per_output_token"),
    }
    assert conventions - NAMES == set()
