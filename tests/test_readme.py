"""What README.md shows can be done as it stands there: configurations load, commands exist, code runs."""

import base64
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from confluent_kafka import Consumer, Message, Producer
from cryptography.exceptions import InvalidSignature
from tests.brokers.embedded import EmbeddedBroker
from tests.contracts.strategies import samples

from flyball_cli.main import COMMANDS, flyball
from flyball_contracts.codec import record_message
from flyball_contracts.config import Config, load_config, parse_config
from flyball_contracts.errors import ConfigError
from flyball_contracts.kafka import producer_settings
from flyball_contracts.security.signing import new_key
from flyball_contracts.topics import DECISIONS, TOPICS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
CONFIGURATIONS = [text for language, text in BLOCKS if language == "yaml"]
SHELL = [line for language, text in BLOCKS if language == "" for line in text.splitlines()]
INLINE = re.findall(r"`(flyball [^`]+)`", README.replace("\n", " "))
LINES = [line for line in (*SHELL, *INLINE) if line.startswith("flyball ")]


@pytest.mark.parametrize("text", CONFIGURATIONS)
def test_configurations_load(text: str) -> None:
    assert parse_config(text, Config) != Config()


def test_a_mistake_is_told_as_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flyball.yaml").write_text("\n" * 5 + "agent:\n  perid_s: 1\n")
    with pytest.raises(ConfigError) as raised:
        load_config(Path("flyball.yaml"), Config)
    assert f"\nerror: {raised.value}\n" in README


@pytest.mark.parametrize("line", LINES)
def test_commands_take_what_they_are_given(line: str) -> None:
    name, *arguments = shlex.split(line, comments=True)[1:]
    command = flyball.get_command(click.Context(flyball), name)
    assert command is not None
    if arguments:  # without, it is only spoken of
        command.make_context(name, arguments)


def test_every_command_and_file_that_is_named_exists() -> None:
    assert {line.split()[1] for line in LINES} <= set(COMMANDS)
    named = set(re.findall(r"(?:infra|bench)/[\w./-]*\w", README))
    assert [path for path in named if not (ROOT / path).exists()] == []
    goals = set(re.findall(r"^(?:make |.*`make )(\w+)", README, re.MULTILINE))
    assert goals
    assert goals <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_benchmarks_are_described_with_options_that_they_have() -> None:
    text = (ROOT / "bench" / "README.md").read_text()
    files = {path: path.read_text() for path in (ROOT / "bench").rglob("*.py")}
    scripts = {
        path.relative_to(ROOT / "bench").as_posix(): source
        for path, source in files.items()
        if 'if __name__ == "__main__":' in source and "ArgumentParser(" in source
    }
    assert set(re.findall(r"^\*\*`([\w/]+\.py)`:", text, re.MULTILINE)) == set(scripts)
    for name, words in re.findall(r"`python bench/([\w/]+\.py)([^`]*)`", text):
        parts = re.findall(r"^from bench\.([\w.]+) import", scripts[name], re.MULTILINE)
        beside = [ROOT / "bench" / f"{part.replace('.', '/')}.py" for part in parts]
        source = "".join([scripts[name], *(files[path] for path in beside if path in files)])
        assert [option for option in re.findall(r"--[\w-]+", words) if f'"{option}"' not in source] == []
    ours = re.compile(r"^from (bench|tests)\b", re.MULTILINE)
    assert [name for name, source in scripts.items() if ours.search(source) and "sys.path.insert(" not in source] == []


def test_topics_that_are_named_exist() -> None:
    assert set(re.findall(r"flyball\.[a-z]+\.v1", README)) <= set(TOPICS)


def test_the_subscriber_in_python_hears_every_kind_of_decision(embedded_broker: Callable[..., EmbeddedBroker]) -> None:
    (program,) = [text for language, text in BLOCKS if language == "python" and "Consumer(" in text]
    broker = embedded_broker({DECISIONS.name: DECISIONS.partitions})
    sent = [record_message(samples()[kind][0], "/test") for kind in ("Scale", "Migrate", "Preempt")]
    producer = Producer(producer_settings(broker.bootstrap, client_id="test"))
    for _, key, value, headers, _ in sent:
        producer.produce(DECISIONS.name, value, key, headers=list(headers))
    assert producer.flush(30.0) == 0
    program = program.replace("kafka-1:9092", broker.bootstrap)
    process = subprocess.Popen([sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        heard = {process.stdout.readline().strip() for _ in sent}
    finally:
        process.kill()
        process.communicate()
    decisions = [json.loads(message.value) for message in sent]
    assert heard == {f"{d['id']} {d['type']} {d['target']} {d['reason']}" for d in decisions}


def test_a_signature_is_verified_as_shown(embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path) -> None:
    (program,) = [text for language, text in BLOCKS if language == "python" and "def verify" in text]
    room: dict[str, Callable[[Message, bytes], None]] = {}
    exec(program, room)
    signer = new_key(tmp_path / "worker.pem")
    public = base64.b64encode(signer.public)
    broker = embedded_broker({DECISIONS.name: 1})
    message = record_message(samples()["Scale"][0], "/test")
    producer = Producer(producer_settings(broker.bootstrap, client_id="test"))
    for value in (message.value, message.value + b" "):
        headers = dict([*message.headers, signer.header(DECISIONS.name, message.value)])
        producer.produce(DECISIONS.name, value, message.key, headers={**headers})
    assert producer.flush(30.0) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([DECISIONS.name])
    try:
        genuine, changed = consumer.consume(2, 30.0)
    finally:
        consumer.close()
    room["verify"](genuine, public)
    with pytest.raises(InvalidSignature):
        room["verify"](changed, public)
