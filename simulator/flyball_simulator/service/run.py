"""Runs the simulated fleet: sends it to a broker in real time or faster, and carries out submissions."""

import math
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from flyball_contracts.config import FleetConfig, KafkaConfig
from flyball_simulator.cell.baseline import Baseline
from flyball_simulator.fleet import Fleet
from flyball_simulator.service.journal import Journal
from flyball_simulator.service.platform import Platform
from flyball_simulator.service.sender import FleetReport, Sender
from flyball_simulator.service.server import bound, serving


def run_fleet(
    config: FleetConfig,
    kafka: KafkaConfig,
    *,
    stop: threading.Event,
    start_ns: int,
    speed: float = 1.0,
    ticks: int | None = None,
    listen: str | None = None,
    listening: Callable[[str], object] = str,
    baseline: bool = False,
    state: Path | None = None,
) -> FleetReport:
    """Send the fleet's messages until ``stop`` is set or ``ticks`` ticks are sent; the accounts come last.

    ``speed`` is event seconds per wall second (infinite: as fast as the broker accepts); the wall clock only paces.
    Each tick has its own absolute due time, so a late one delays no other. With ``listen`` (``HOST:PORT``) the platform
    API is served there, and ``listening`` is called with its URL. With ``baseline`` the same fleet without Flyball runs
    alongside, for its account. With ``state``, a file, the fleet resumes where its process ended, however it ended: it
    repeats the recorded ticks from the recorded start, and sends those that the broker has not acknowledged.

    Raises :class:`TransportError` if the broker does not answer at the start, :class:`ConfigError` for an invalid
    fleet, an address in use or the state of another fleet, ``ValueError`` for a speed that is not positive.
    """
    if not speed > 0:
        raise ValueError(f"speed is {speed}; pass a positive number of event seconds per wall second")
    with ExitStack() as stack:
        journal = None if state is None else stack.enter_context(Journal(state, config, start_ns))
        start_ns = start_ns if journal is None else journal.start_ns
        fleet, beside = Fleet(config, start_ns), Baseline(config, start_ns) if baseline else None
        platform = Platform(fleet, 0.0 if math.isinf(speed) else speed, beside, journal)
        server = None if listen is None else stack.enter_context(bound(platform, listen))
        sender = Sender(kafka, config.cell, start_ns, stop, None if journal is None else journal.sent)
        stack.callback(sender.close)
        if journal is None or journal.last_sent < 0:
            sender.send(fleet.messages_at_start(), -1)
        for index, messages in platform.replay():
            if journal is not None and index > journal.last_sent:
                sender.send(messages, index)
        if server is not None:
            listening(stack.enter_context(serving(server)))
        report, first = sender.report, fleet.plant.index
        began = time.monotonic()
        while not stop.is_set() and (ticks is None or report.ticks < ticks):
            sender.wait_until(began + report.ticks * config.tick_s / speed)
            if stop.is_set():
                break
            index = first + report.ticks
            sender.send(platform.tick(index), index)
            report.ticks += 1
        if fleet.plant.index:
            sender.send(platform.account_messages())
    return report
