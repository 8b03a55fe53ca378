"""The example configurations load, and the complete one shows every key with its default."""

from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import yaml

from flyball_contracts.config import Config, Section, load_config

EXAMPLES = Path(__file__).resolve().parents[2] / "infra" / "examples"
COMPLETE = EXAMPLES / "flyball.yaml"
COMPOSE = EXAMPLES / "flyball.compose.yaml"


def _keys_of_type(kind: type[msgspec.Struct], path: str = "") -> set[str]:
    keys: set[str] = set()
    for name, hint in get_type_hints(kind).items():
        keys.add(path + name)
        if isinstance(hint, type) and issubclass(hint, Section):
            keys |= _keys_of_type(hint, f"{path}{name}.")
    return keys


def _keys_of_file(data: dict[str, Any], known: set[str], path: str = "") -> set[str]:
    keys: set[str] = set()
    for name, value in data.items():
        keys.add(path + name)
        if isinstance(value, dict) and any(key.startswith(f"{path}{name}.") for key in known):
            keys |= _keys_of_file(value, known, f"{path}{name}.")  # pyright: ignore[reportUnknownArgumentType]
    return keys


def test_complete_example_shows_every_key() -> None:
    known = _keys_of_type(Config)
    assert "actuator.blast_radius.share" in known
    assert _keys_of_file(yaml.safe_load(COMPLETE.read_text()), known) == known


def test_complete_example_is_the_defaults() -> None:
    assert load_config(COMPLETE, Config) == Config()


def test_compose_configuration_loads_and_only_does_dry_runs() -> None:
    config = load_config(COMPOSE, Config)
    assert config.agent.root == "/host"
    assert config.influx.url == "http://influxdb:8086"
    assert config.dashboard.host == "0.0.0.0"
    assert config.actuator.mode == "dry_run"
    assert config.actuator.ledger
    assert config.actuator.kill_switch
