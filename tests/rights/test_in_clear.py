"""What leaves a machine without TLS, and commands or holds a secret, is said in one line at the start."""

import base64
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from tests.actuators.loop import config_for

from flyball_actuators.service import run_actuator
from flyball_collectors.export.sender import OtlpSender
from flyball_collectors.parameters import ExportParameters
from flyball_contracts.config import DecisionKey, KafkaConfig, PlatformConfig
from flyball_contracts.errors import TransportError
from flyball_contracts.security.signing import new_key
from flyball_streams.notify.targets import Alertmanager, Webhook
from flyball_streams.sinks import run_influx_sink
from flyball_streams.sinks.parameters import InfluxParameters

FAR = "kafka.example:9093"
REAL = (PlatformConfig(cells=("real",)),)
SIMULATED = (PlatformConfig(cells=("fleet",), driver="simulated", url="http://127.0.0.1:1"),)
LIVE: dict[str, Any] = {"mode": "live", "allow": ("web-*",), "kill_switch": "/run/flyball/stop", "platforms": REAL}


@pytest.mark.parametrize(
    ("bootstrap", "client", "changes", "said"),
    [
        (FAR, {}, {}, True),
        ("127.0.0.1:9092, kafka.example:9093", {}, {}, True),
        (FAR, {"security.protocol": "SASL_PLAINTEXT"}, {}, True),
        (FAR, {"security.protocol": "sasl_ssl"}, {}, False),
        (FAR, {"security.protocol": "SSL"}, {}, False),
        ("127.0.0.1:9092,[::1]:9092,localhost:9092", {}, {}, False),
        (FAR, {}, {"mode": "dry_run"}, False),
        (FAR, {}, {"platforms": SIMULATED}, False),
    ],
)
def test_an_actuator_says_that_its_orders_come_in_clear(
    bootstrap: str, client: dict[str, str], changes: dict[str, Any], said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(bootstrap, "g", **{**LIVE, **changes})
    config = msgspec.structs.replace(config, kafka=KafkaConfig(bootstrap=bootstrap, client=client))
    ended = Event()
    ended.set()
    run_actuator(config, stop=ended)
    lines = [record.message for record in caplog.records if "without TLS" in record.message]
    assert len(lines) == said
    for line in lines:
        assert line.startswith("kafka.bootstrap: decisions come unsigned, and without TLS from kafka.example:9093; ")
        assert line.endswith("set security.protocol: sasl_ssl in kafka.client, and actuator.keys")


def test_a_signature_is_said_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ended = Event()
    ended.set()
    key = DecisionKey(public=base64.b64encode(new_key(tmp_path / "key.pem").public).decode())
    run_actuator(config_for(FAR, "g", **LIVE, keys=(key,)), stop=ended)
    (line,) = [record.message for record in caplog.records if "without TLS" in record.message]
    assert "signed, but without TLS from" in line
    assert line.endswith("; set security.protocol: sasl_ssl in kafka.client")


@pytest.mark.parametrize(("host", "said"), [("http://far.example", 1), ("https://far.example", 0), ("http://[::1]", 0)])
def test_a_secret_in_clear_is_said(
    host: str, said: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines(place: str) -> int:
        return sum(place in one.message and "without TLS; use https" in one.message for one in caplog.records)

    token = {"Authorization": "Bearer secret"}
    for target in (Alertmanager, Webhook):
        caplog.clear()
        target(host, headers=token)
        assert lines("incidents notify") == said
        target(host)
        assert lines("incidents notify") == said, "nothing secret"
    export = ExportParameters(otlp_endpoint=f"{host}/v1/metrics")
    OtlpSender(export, "machine", {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=secret"}).close()
    OtlpSender(export, "machine", {}).close()
    assert lines("agent.export.otlp_endpoint") == said
    monkeypatch.setenv("INFLUX_TOKEN", "secret")
    monkeypatch.setattr("flyball_streams.sinks.inventories._RESPONSE_S", 0.5)
    nowhere = KafkaConfig(bootstrap="127.0.0.1:1", client={"log_level": "0"})
    with pytest.raises(TransportError):
        run_influx_sink(nowhere, InfluxParameters(url=host), stop=Event())
    assert lines("influx.url") == said
