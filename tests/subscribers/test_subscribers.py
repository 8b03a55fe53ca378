"""Subscribers in Go and Node on the demo's broker and on Apache Kafka: the README's as they stand there, and such that
know nothing but the published AsyncAPI document.

`infra/subscribers/fetch` gets their clients; without FLYBALL_SUBSCRIBERS, the folder that it prints, nothing is
collected here.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.brokers.base import Broker
from tests.brokers.embedded import EmbeddedBroker
from tests.contracts.strategies import samples

from flyball_contracts.codec import Message, record_message
from flyball_contracts.kafka import producer_settings
from flyball_contracts.topics import DECISIONS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
README = (ROOT / "README.md").read_text()
PINS = ROOT / "infra" / "subscribers"
CLIENTS = Path(os.environ["FLYBALL_SUBSCRIBERS"])
ADDRESS = "kafka-1:9092"
ANSWER_S = 90.0
KINDS = ("Scale", "Migrate", "Preempt", "Check")

pytestmark = pytest.mark.integration


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(text)


def go(folder: Path, text: str) -> list[str]:
    """Build a program, and return the command that runs it."""
    for name in ("go.mod", "go.sum"):
        shutil.copy(PINS / name, folder)
    (folder / "main.go").write_text(text)
    built = subprocess.run(["go", "build", "-o", "subscriber", "."], cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return [str(folder / "subscriber")]


def node(folder: Path, text: str) -> list[str]:
    """Return the command that runs a program."""
    (folder / "subscriber.mjs").write_text(text)
    (folder / "node_modules").symlink_to(CLIENTS / "node_modules")
    return ["node", str(folder / "subscriber.mjs")]


def in_go(folder: Path, broker: Broker, topic: str) -> list[str]:
    text = block("go").replace(DECISIONS.name, topic).replace("my-system", topic)
    if isinstance(broker, EmbeddedBroker):
        (option,) = re.findall(r"`(kgo\.MaxVersions\([^`]*\))`", README)
        text = text.replace(f'"{ADDRESS}"),', f'"{ADDRESS}"),\n{option},')
        (package,) = re.findall(r"`(github\.com/[\w./-]+/kversion)`", README)
        text = text.replace('/kgo"\n', f'/kgo"\n\t"{package}"\n')
    return go(folder, text.replace(ADDRESS, broker.bootstrap))


def in_node(folder: Path, broker: Broker, topic: str) -> list[str]:
    text = block("js").replace(DECISIONS.name, topic).replace("my-system", topic).replace(ADDRESS, broker.bootstrap)
    return node(folder, text)


def of_document_in_go(folder: Path, arguments: list[str]) -> list[str]:
    return [*go(folder, (HERE / "from_schema.go").read_text()), *arguments]


def of_document_in_node(folder: Path, arguments: list[str]) -> list[str]:
    return [*node(folder, (HERE / "from_schema.mjs").read_text()), *arguments]


@pytest.mark.parametrize("made", [in_go, in_node], ids=["go", "node"])
def test_a_subscriber_hears_every_kind_of_decision(
    broker: Broker,
    unique: Callable[[str], str],
    tmp_path: Path,
    made: Callable[[Path, Broker, str], list[str]],
) -> None:
    topic = unique("decisions")
    command = made(tmp_path, broker, topic)
    sent = [record_message(samples()[kind][0], "/test") for kind in ("Scale", "Migrate", "Preempt")]
    send(broker, topic, sent)
    decisions = [json.loads(message.value) for message in sent]
    expect(tmp_path, command, {f"{d['id']} {d['type']} {d['target']} {d['reason']}" for d in decisions})


@pytest.mark.parametrize("made", [of_document_in_go, of_document_in_node], ids=["go", "node"])
def test_a_subscriber_that_knows_only_the_published_document_reads_and_checks_every_kind_of_decision(
    broker: Broker,
    unique: Callable[[str], str],
    tmp_path: Path,
    made: Callable[[Path, list[str]], list[str]],
) -> None:
    topic, document = unique("decisions"), tmp_path / "asyncapi.yaml"
    document.write_text(
        (ROOT / "infra" / "asyncapi.yaml").read_text().replace(f"address: {DECISIONS.name}\n", f"address: {topic}\n")
    )
    command = made(tmp_path, [str(document), "decisions", broker.bootstrap])
    sent = [record_message(one, "/test") for kind in KINDS for one in samples()[kind]]
    other = sent[0]._replace(key=b"elsewhere", value=sent[0].value.replace(b'"confidence":', b'"confidences":'))
    send(broker, topic, [*sent, other])
    lines = {f"io.flyball.{json.loads(m.value)['type']} {m.key.decode()} valid" for m in sent}
    expect(tmp_path, command, lines | {"io.flyball.Scale elsewhere invalid"})


def send(broker: Broker, topic: str, messages: Sequence[Message]) -> None:
    """Create a topic of decisions with these messages."""
    broker.create_topics({topic: DECISIONS.partitions})
    producer = Producer(producer_settings(broker.bootstrap, client_id="test", portable=True))
    for message in messages:
        producer.produce(topic, message.value, message.key, headers=list(message.headers))
    assert producer.flush(30.0) == 0


def expect(folder: Path, command: list[str], lines: set[str]) -> None:
    """Run a subscriber until it has printed all these lines, in any order."""
    log, give_up = folder / "output.log", time.monotonic() + ANSWER_S
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        try:
            while not lines <= set(log.read_text().splitlines()):
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < give_up, (
                    f"{lines - set(log.read_text().splitlines())} of {log.read_text()[-3000:]}"
                )
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
