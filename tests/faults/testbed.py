"""A broker, a fleet that obeys, two workers and two actuators with two ledgers, each a process that can be hit."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.brokers.kafka import RealKafka
from tests.brokers.server import LOOPBACK, free_ports
from tests.cli.shell import Forked
from tests.faults.platform import PlatformReader
from tests.faults.schedule import Fault

from flyball_contracts.config import Config, FleetConfig, KafkaConfig, PlatformConfig
from flyball_contracts.errors import TransportError
from flyball_contracts.kafka import Place, bounds, consumer_settings
from flyball_contracts.topics import DECISIONS, DEMAND, EVENTS, PROPOSALS, TELEMETRY, TOPICS

PARTITIONS = {name: 2 for name in TOPICS} | {TELEMETRY.name: 4, EVENTS.name: 4}
SOURCES = (TELEMETRY.name, EVENTS.name, DEMAND.name, PROPOSALS.name)
ANSWER_S = 10.0
READY_S = 180.0
Setup = tuple[Config, FleetConfig, float]
"""Configuration of worker and actuators, the fleet, and event seconds per second."""


def wait_until(done: Callable[[], bool], what: str, deadline_s: float) -> None:
    """Poll until ``done``; fails with what did not happen."""
    give_up = time.monotonic() + deadline_s
    while not done():
        assert time.monotonic() < give_up, f"{what}: not within {deadline_s:.0f} s"
        time.sleep(0.2)


class Service:
    """A ``flyball`` command that is started again whenever it was killed; its output is in one file.

    It is forked from a process that has already imported its modules, so it starts sooner than a user's would. With
    ``inside``, a command that replaces itself by the one that follows it, it starts as a user's does.
    """

    def __init__(self, name: str, folder: Path, arguments: Iterable[str], inside: Iterable[str] = ()) -> None:
        self.name, self.log, self.starts = name, folder / f"{name}.log", 0
        self.ended_by_itself: list[str] = []
        self._inside, self._arguments = [*inside], [*arguments]
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None:
            return
        self.starts += 1
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        with self.log.open("ab") as out:
            if self._inside:
                self._process = subprocess.Popen(
                    [*self._inside, sys.executable, "-m", "flyball_cli", *self._arguments],
                    stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=environment,
                )  # fmt: skip
            else:
                log = str(self.log)
                self._process = Forked("flyball_cli", *self._arguments, output=log, errors=log, env=environment)

    @property
    def pid(self) -> int | None:
        """The process's id while it runs."""
        return None if self._process is None else self._process.pid

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def watch(self) -> None:
        """As a supervisor does, start it again where it ended by itself, and remember that it did."""
        status = None if self._process is None else self._process.poll()
        if status is not None:
            self.ended_by_itself.append(f"{self.name} ended with {status}: {self.tail(3)}")
            self._process = None
            self.start()

    def terminate(self, within_s: float = 20.0) -> None:
        """Ask it to end and see it end."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(within_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def tail(self, lines: int = 20) -> str:
        """Last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""


class Environment:
    """All of it, from the start of the broker to the end of the ``with`` block."""

    def __init__(self, folder: Path, jars: Path | None, setup: Setup) -> None:
        config, fleet, speed = setup
        folder.mkdir(parents=True, exist_ok=True)
        self.fleet = fleet
        self.speed = speed
        self._starting: threading.Thread | None = None
        self._health: dict[str, Path] = {}
        self._stack = ExitStack()
        self.broker = self._stack.enter_context(RealKafka(PARTITIONS, jars=jars))
        (port,) = free_ports(1)
        url = f"http://{LOOPBACK}:{port}"
        self.platform = PlatformReader(url)
        replace = msgspec.structs.replace
        self.config = replace(config, kafka=KafkaConfig(bootstrap=self.broker.bootstrap))
        platforms = (PlatformConfig(cells=(fleet.cell,), driver="simulated", url=url, poll_s=0.2),)
        actuator = replace(self.config.actuator, platforms=platforms)
        common = self._written(folder / "flyball.yaml", self.config)
        arguments = {
            "fleet": [
                "fleet", str(self._written(folder / "fleet.yaml", fleet)), "--listen", f"{LOOPBACK}:{port}",
                "--state", str(folder / "fleet.state"), "--speed", str(speed), "--config", str(common),
            ],
        }  # fmt: skip
        for i in (1, 2):
            one = replace(self.config, actuator=replace(actuator, ledger=str(folder / f"ledger-{i}")))
            path = self._written(folder / f"actuator-{i}.yaml", one)
            arguments[f"actuator-{i}"] = ["actuate", "--config", str(path)]
            health = self._health[f"worker-{i}"] = folder / f"worker-{i}.health"
            arguments[f"worker-{i}"] = ["worker", "--config", str(common), "--health-file", str(health)]
        self.services = {name: Service(name, folder, args) for name, args in arguments.items()}
        quiet = {"log_level": "0"}  # that the broker is down is what is wanted
        settings = [
            consumer_settings(self.broker.bootstrap, group=group, client_id="faults", extra=quiet)
            for group in ("asker", self.config.worker.app)
        ]
        self._asker, self._group = (Consumer(one) for one in settings)  # neither joins its group
        self._stack.callback(self._close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start all services, the fleet when the workers have their partitions."""
        for name in ("worker-1", "worker-2", "actuator-1", "actuator-2"):
            self.services[name].start()
        self.settle(
            "the workers have their partitions", lambda: all(p.exists() for p in self._health.values()), READY_S
        )
        self.services["fleet"].start()

    def play(self, faults: list[Fault]) -> None:
        """Let the schedule happen, to its end."""
        began = time.monotonic()
        happens = sorted([(fault.at_s, 0, fault) for fault in faults] + [(fault.until_s, 1, fault) for fault in faults])
        for at_s, ends, fault in happens:
            while time.monotonic() < began + at_s:
                self._watch(faults, time.monotonic() - began)
                time.sleep(0.05)
            self._happen(fault, over=bool(ends))
        self._broker_is_up()

    def settle(self, what: str, done: Callable[[], bool], deadline_s: float) -> None:
        """Wait until ``done`` with all services up; those that end by themselves are started again."""

        def all_up_and_done() -> bool:
            self._watch([], 0.0)
            try:
                return done()
            except (KafkaException, TransportError):
                return False

        wait_until(all_up_and_done, what, deadline_s)

    def ends(self, *topics: str) -> dict[Place, int]:
        """Offset after the last message of each partition."""
        places = [(topic, p) for topic in topics for p in range(PARTITIONS[topic])]
        return {place: following for place, (_, following) in bounds(self._asker, places, ANSWER_S).items()}

    def committed(self, *topics: str) -> dict[Place, int]:
        """What the worker's group has committed; 0 where it has not."""
        places = [TopicPartition(topic, p) for topic in topics for p in range(PARTITIONS[topic])]
        return {(tp.topic, tp.partition): max(0, tp.offset) for tp in self._group.committed(places, ANSWER_S)}

    def lag(self) -> int:
        """Messages of the worker's topics that it has not used."""
        used = self.committed(*SOURCES)
        return sum(end - used[place] for place, end in self.ends(*SOURCES).items())

    def decided(self) -> int:
        """Messages on the topic of decisions."""
        return sum(self.ends(DECISIONS.name).values())

    def ended_by_themselves(self) -> list[str]:
        """Services that ended without being hit."""
        return [line for service in self.services.values() for line in service.ended_by_itself]

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {s.name}\n{s.tail()}" for s in self.services.values())

    def _happen(self, fault: Fault, *, over: bool) -> None:
        if fault.victim == "broker":
            self._hit_broker(fault, over=over)
            return
        service = self.services[fault.victim]
        if fault.kind == "kill":
            service.start() if over else service.kill()
        else:
            service.send(signal.SIGCONT if over else signal.SIGSTOP)

    def _hit_broker(self, fault: Fault, *, over: bool) -> None:
        self._broker_is_up()
        if fault.kind == "kill" and over:  # others are hit while it starts
            self._starting = threading.Thread(target=self.broker.set_up)
            self._starting.start()
        elif fault.kind == "kill":
            self.broker.set_down()
        else:
            self.broker.resume() if over else self.broker.pause()

    def _broker_is_up(self) -> None:
        if self._starting is not None:
            self._starting.join()
            self._starting = None

    def _watch(self, faults: list[Fault], at_s: float) -> None:
        hit = {fault.victim for fault in faults if fault.at_s <= at_s <= fault.until_s}
        for name, service in self.services.items():
            if name not in hit and service.starts:
                service.watch()

    def _written(self, path: Path, config: Any) -> Path:
        path.write_bytes(msgspec.yaml.encode(config))
        return path

    def _close(self) -> None:
        self._broker_is_up()
        for service in self.services.values():
            service.kill()
        self._asker.close()
        self._group.close()
