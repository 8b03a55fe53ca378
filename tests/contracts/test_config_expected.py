"""What a configuration error says may stand at its place."""

import re

import pytest

from flyball_contracts.config import Config, parse_config
from flyball_contracts.errors import ConfigError

PAGE = 'agent: {workloads: {targets: [{workload: a, url: "%s", server: %s}]}}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "agent: {export: {metrics_listen: x}}",
            "agent.export.metrics_listen: expected HOST:PORT, e.g. 127.0.0.1:9400",
        ),
        (PAGE % ("x", "vllm"), "agent.workloads.targets[0].url: expected a URL without user, like http://"),
        (
            PAGE % ("http://x", "y"),
            "agent.workloads.targets[0].server: expected one of vllm, triton, tgi, sglang, generic",
        ),
        ("agent: {capacity_type: x}", "agent.capacity_type: expected one of '', owned, reserved, on_demand, spot"),
        ("agent: {period_s: x}", "agent.period_s: expected a number, got text"),
        ("agent: {period_s: 1e300}", "agent.period_s: must be at most 86400"),
        ("agent: {disabled: x}", "agent.disabled: expected a list, got text"),
        ("kafka: {partitions: {flyball.decisions.v1: 1e9}}", "kafka.partitions[flyball.decisions.v1]: expected a"),
        ("kafka: {client: {1: a}}", "kafka.client: a key: expected text, got a whole number"),
        ("worker: {health: {quarantine_share: .inf}}", "worker.health.quarantine_share: .inf is not a finite number"),
        ("feeds: [{source: uk_carbon, zone: .nan}]", "feeds[0].zone: .nan is not a finite number"),
        ("actuator: {mode: x}", "actuator.mode: expected one of off, dry_run, live"),
    ],
)
def test_an_error_says_what_may_stand_there(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"<config>:1: {says}")):
        parse_config(text, Config)
