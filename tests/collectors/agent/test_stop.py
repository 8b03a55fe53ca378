"""The agent's last words, from a real process: it announces a stop, and cannot announce that it is killed."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

from confluent_kafka import Consumer
from tests.brokers.embedded import EmbeddedBroker
from tests.cli.shell import start

from flyball_contracts.codec import decode_message
from flyball_contracts.frame import Frame
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.records import Inventory
from flyball_contracts.topics import EVENTS, INVENTORY, TELEMETRY

CONFIG = """
agent: {{node: n1, cell: c1, period_s: 0.2, state_dir: "{folder}", disabled: [nvml, attribution, kmsg]}}
"""
WAITS_S = 60.0


class Reader:
    """What the agents of one broker have sent, in order of each topic."""

    def __init__(self, bootstrap: str) -> None:
        self.records: list[object] = []
        self._consumer = Consumer(consumer_settings(bootstrap, group="test", client_id="test"))
        self._consumer.subscribe([TELEMETRY.name, EVENTS.name, INVENTORY.name])

    def until(self, seen: Callable[[], bool]) -> None:
        give_up_s = time.monotonic() + WAITS_S
        while not seen():
            assert time.monotonic() < give_up_s, self.records[-5:]
            message = self._consumer.poll(0.2)
            if message is not None and not message.error():
                headers = cast("list[tuple[str, bytes | None]] | None", message.headers())
                self.records.append(decode_message(str(message.topic()), message.value(), headers))

    @property
    def epochs(self) -> set[int]:
        return {one.epoch for one in self.records if isinstance(one, Frame)}

    @property
    def inventories(self) -> list[Inventory]:
        return [one for one in self.records if isinstance(one, Inventory)]

    @property
    def is_running(self) -> bool:
        return bool(self.inventories) and self.inventories[-1].agent == "running"

    def close(self) -> None:
        self._consumer.close()


def test_an_agent_that_is_told_to_stop_says_so_and_one_that_is_killed_does_not(
    embedded_broker: Callable[..., EmbeddedBroker], tmp_path: Path
) -> None:
    broker = embedded_broker({TELEMETRY.name: 1, EVENTS.name: 1, INVENTORY.name: 1})
    config = tmp_path / "flyball.yaml"
    config.write_text(CONFIG.format(folder=tmp_path / "state"))
    reader = Reader(broker.bootstrap)

    def run(number: signal.Signals, starts: int) -> subprocess.Popen[str]:
        with start("agent", "--config", config, "--bootstrap", broker.bootstrap) as process:
            reader.until(lambda: process.poll() is not None or (len(reader.epochs) == starts and reader.is_running))
            process.send_signal(number)
            _, errors = process.communicate(timeout=WAITS_S)
            assert len(reader.epochs) == starts, errors
        return process

    try:
        assert run(signal.SIGTERM, 1).returncode == 0
        reader.until(lambda: not reader.is_running)
        first, last = reader.inventories[0], reader.inventories[-1]
        assert (first.agent, last.boot_id) == ("running", first.boot_id)
        assert (last.time_ns, last.epoch) > (first.time_ns, first.epoch)
        assert run(signal.SIGKILL, 2).returncode == -signal.SIGKILL
        quiet_s = time.monotonic() + 2.0
        reader.until(lambda: time.monotonic() > quiet_s)  # what it had sent is read by then
        assert reader.is_running, "nothing says that it is gone"
    finally:
        reader.close()
