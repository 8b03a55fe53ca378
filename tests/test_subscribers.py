"""The README's subscribers in Go and Node, as they stand there, on the demo's broker and on Apache Kafka.

`infra/subscribers/fetch` gets their clients; without FLYBALL_SUBSCRIBERS, the folder that it prints, nothing is
collected here.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.brokers.base import Broker
from tests.brokers.embedded import EmbeddedBroker
from tests.contracts.strategies import samples

from flyball_contracts.codec import record_message
from flyball_contracts.kafka import producer_settings
from flyball_contracts.topics import DECISIONS

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PINS = ROOT / "infra" / "subscribers"
CLIENTS = Path(os.environ["FLYBALL_SUBSCRIBERS"])
ADDRESS = "kafka-1:9092"
ANSWER_S = 90.0

pytestmark = pytest.mark.integration


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return str(text)


def in_go(folder: Path, broker: Broker, topic: str) -> list[str]:
    text = block("go").replace(DECISIONS.name, topic).replace("my-system", topic)
    if isinstance(broker, EmbeddedBroker):
        (option,) = re.findall(r"`(kgo\.MaxVersions\([^`]*\))`", README)
        text = text.replace(f'"{ADDRESS}"),', f'"{ADDRESS}"),\n{option},')
        (package,) = re.findall(r"`(github\.com/[\w./-]+/kversion)`", README)
        text = text.replace('/kgo"\n', f'/kgo"\n\t"{package}"\n')
    for name in ("go.mod", "go.sum"):
        shutil.copy(PINS / name, folder)
    (folder / "main.go").write_text(text.replace(ADDRESS, broker.bootstrap))
    built = subprocess.run(["go", "build", "-o", "subscriber", "."], cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return [str(folder / "subscriber")]


def in_node(folder: Path, broker: Broker, topic: str) -> list[str]:
    text = block("js").replace(DECISIONS.name, topic).replace("my-system", topic).replace(ADDRESS, broker.bootstrap)
    (folder / "subscriber.mjs").write_text(text)
    (folder / "node_modules").symlink_to(CLIENTS / "node_modules")
    return ["node", str(folder / "subscriber.mjs")]


@pytest.mark.parametrize("made", [in_go, in_node], ids=["go", "node"])
def test_a_subscriber_hears_every_kind_of_decision(
    broker: Broker,
    unique: Callable[[str], str],
    tmp_path: Path,
    made: Callable[[Path, Broker, str], list[str]],
) -> None:
    topic = unique("decisions")
    command = made(tmp_path, broker, topic)
    broker.create_topics({topic: DECISIONS.partitions})
    sent = [record_message(samples()[kind][0], "/test") for kind in ("Scale", "Migrate", "Preempt")]
    producer = Producer(producer_settings(broker.bootstrap, client_id="test", portable=True))
    for message in sent:
        producer.produce(topic, message.value, message.key, headers=list(message.headers))
    assert producer.flush(30.0) == 0
    decisions = [json.loads(message.value) for message in sent]
    expected = {f"{d['id']} {d['type']} {d['target']} {d['reason']}" for d in decisions}
    log, give_up = tmp_path / "output.log", time.monotonic() + ANSWER_S
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT)
        try:
            while not expected <= set(log.read_text().splitlines()):
                assert process.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < give_up, log.read_text()[-3000:]
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
