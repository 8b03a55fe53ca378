from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from flyball_contracts.config import AgentConfig, Config, load_config, parse_config
from flyball_contracts.errors import ConfigError

FOLDER = Path(__file__).parent / "config"
BAD = sorted(path.name.removesuffix(".bad.yml") for path in FOLDER.glob("*.bad.yml"))


def test_each_mistake_has_its_remedy() -> None:
    assert sorted(path.name.removesuffix(".good.yml") for path in FOLDER.glob("*.good.yml")) == BAD
    assert len(BAD) >= 12


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_named_with_its_place(name: str) -> None:
    path = FOLDER / f"{name}.bad.yml"
    expected = path.read_text().splitlines()[0].removeprefix("# ")
    with pytest.raises(ConfigError) as caught:
        load_config(path, Config)
    assert str(caught.value).removeprefix(f"{FOLDER}/").startswith(expected)


@pytest.mark.parametrize("name", BAD)
def test_the_remedy_is_read(name: str) -> None:
    assert isinstance(load_config(FOLDER / f"{name}.good.yml", Config), Config)


def test_what_is_read_is_what_was_written() -> None:
    config = parse_config("agent: {period_s: 2, cell: west}\nworker:\n  sizing: {max_scale_in: 0.2}", Config)
    assert config.agent == AgentConfig(period_s=2.0, cell="west")
    assert config.worker.sizing.max_scale_in == 0.2
    assert parse_config("", Config) == Config()


def test_every_default_can_be_written_down_and_read_back() -> None:
    text = msgspec.yaml.encode(Config()).decode()
    assert parse_config(text, Config) == Config()


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yml: cannot be read: No such file or directory"):
        load_config(tmp_path / "gone.yml", Config)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path, Config)
    (tmp_path / "latin.yml").write_bytes(b"agent: {node: \xe9}")
    with pytest.raises(ConfigError, match=r"latin\.yml: cannot be read: it is not UTF-8 text"):
        load_config(tmp_path / "latin.yml", Config)


@pytest.mark.parametrize(
    "text", ["[" * 3000, "agent: &a [*a]", "? [1]\n: 2", "\0", "1: 2", "agent: {1: 2}", "<<: 3", "- *x"]
)
def test_strange_yaml_is_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_config(text, Config)


@given(st.text(alphabet="agent:periods_{}[]-&*!?|>#'\" \n\t0123.", max_size=60))
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_configuration_or_a_config_error(text: str) -> None:
    try:
        assert isinstance(parse_config(text, Config), Config)
    except ConfigError as error:
        published = str(error)
    else:
        return
    assert published.startswith("<config>:")
