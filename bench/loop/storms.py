"""How often the demo decides about a target, and whether it repeats what was refused.

The real `flyball demo` command runs headless: its fleet obeys, a worker decides, a live actuator acts. A reader beside
it takes every decision and outcome off its broker. All is judged in event time: no target may have more than
one decision in any minute, unless a device fails or nothing runs of what is needed; and what was refused may not be
repeated before its window is over, which doubles with each refusal. The exit status is 1 when one of these does not
hold.

``--quick`` is an hour at 120 times real time, in ticks of 20 s.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.common.report import machine, machine_line, wide_console
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.brokers.server import LOOPBACK, free_ports
from tests.streams.engine.storms import Target, storms

from flyball_contracts.codec import decode_record
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.kafka import consumer_settings
from flyball_contracts.records import AnyDecision, DemandTick, Outcome
from flyball_contracts.topics import DECISIONS, DEMAND, OUTCOMES
from flyball_streams.engine.parameters import SizingParameters

SPEED, QUICK_SPEED = 10.0, 120.0
HOURS = 1.0
START_S = 25.0
"""Wall seconds that the services take to start, before event time passes."""
ANSWER_S = 5.0


class Reader:
    """Reads what the demo's broker holds of decisions, outcomes and ticks."""

    def __init__(self, bootstrap: str) -> None:
        self.decisions: dict[str, AnyDecision] = {}
        self.outcomes: list[Outcome] = []
        self.first_ns, self.last_ns = 0, 0
        quiet = {"log_level": "0"}  # the broker is not there at first, and gone in the end
        settings = consumer_settings(bootstrap, group="bench-storms", client_id="bench-storms", extra=quiet)
        self._consumer = Consumer(settings)
        self._placed = False

    def poll(self) -> None:
        """Read what has come; nothing before the broker answers."""
        try:
            if not self._placed:
                known = self._consumer.list_topics(timeout=ANSWER_S).topics
                topics = (DECISIONS.name, OUTCOMES.name, DEMAND.name)
                self._consumer.assign([TopicPartition(t, p, 0) for t in topics for p in known[t].partitions])
                self._placed = True
            messages = self._consumer.consume(500, 0.5)
        except (KafkaException, KeyError):
            time.sleep(0.5)
            return
        for m in messages:
            if m.error() is None:
                headers = cast("list[tuple[str, bytes | None]]", m.headers() or [])
                self._take(decode_record(m.topic() or "", m.value(), headers))

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()

    def _take(self, record: Any) -> None:
        if isinstance(record, AnyDecision):
            self.decisions.setdefault(record.id, record)
        elif isinstance(record, Outcome):
            self.outcomes.append(record)
        elif isinstance(record, DemandTick) and record.cell == "fleet":
            self.first_ns = self.first_ns or record.tick.end_ns
            self.last_ns = max(self.last_ns, record.tick.end_ns)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo, judge it, and say by the exit status whether it held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"at {QUICK_SPEED:g} instead of {SPEED:g} x real time")
    parser.add_argument("--speed", type=float, help="event seconds per second")
    parser.add_argument("--hours", type=float, default=HOURS, help="event time (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the fleet (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    options = parser.parse_args(arguments)
    speed = options.speed or (QUICK_SPEED if options.quick else SPEED)
    reader, status = _run(speed, options.hours, options.seed)
    found = storms(reader.decisions.values(), reader.outcomes, SizingParameters().cooldown_s)
    minutes = (reader.last_ns - reader.first_ns) / NS_PER_S / 60
    console = wide_console()
    title = f"The demo at {speed:g} x real time: {minutes:.0f} minutes of event time, seed {options.seed}"
    _show(console, found, title)
    ends = Counter(o.status for o in reader.outcomes if o.final)
    console.print(f"outcomes: {', '.join(f'{n} {status}' for status, n in sorted(ends.items()))}")
    console.print(machine_line(machine()))
    if options.json is not None:
        figures = {"speed": speed, "minutes": minutes, "demo_exit_status": status, "outcomes": dict(ends)}
        rows = {"targets": [target._asdict() for target in found]}
        options.json.write_text(json.dumps({**machine(), **figures, **rows}, indent=1) + "\n")
    whole = status == 0 and minutes >= 55 * options.hours
    return 0 if whole and found and not any(target.crowded or target.repeated for target in found) else 1


def _run(speed: float, hours: float, seed: int) -> tuple[Reader, int]:
    """Run the demo for so much event time; what was read, and its exit status."""
    (port,) = free_ports(1)
    reader = Reader(f"{LOOPBACK}:{port}")
    words = ["demo", "--headless", "--speed", str(speed), "--seed", str(seed), "--broker-port", str(port)]
    for_s = START_S + hours * 3600.0 / speed
    with subprocess.Popen(
        [sys.executable, "-m", "flyball_cli", *words, "--for", str(for_s)], stdout=subprocess.DEVNULL
    ) as demo:
        try:
            while demo.poll() is None:
                reader.poll()
        finally:
            demo.terminate()
            reader.close()
    return reader, demo.wait()


def _show(console: Console, found: Sequence[Target], title: str) -> None:
    table = Table(title=title)
    columns = (
        "target", "decisions", "most in a minute", "clock minutes with more", "urgent", "without need", "refused",
        "repeated",
    )  # fmt: skip
    for column in columns:
        table.add_column(column, justify="left" if column == "target" else "right")
    for t in found:
        counts = (t.decisions, t.most, t.over, t.urgent, len(t.crowded), t.refused, len(t.repeated))
        table.add_row(t.name, *map(str, counts))
    console.print(table)
    for t in found:
        for text in (*t.crowded, *t.repeated):
            console.print(f"{t.name}: {text}", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
