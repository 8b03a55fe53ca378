"""The agent's loop: tick, read, send."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np

from flyball_collectors.agent.identity import Identity, identify, look
from flyball_collectors.agent.inventory import InventoryKeeper, build_inventory
from flyball_collectors.agent.outbox import Outbox
from flyball_collectors.agent.sources import open_sources
from flyball_collectors.agent.spooling import open_spool
from flyball_collectors.agent.ticker import Clock, Tick, ticks
from flyball_collectors.base import Collector, Reading, node_event
from flyball_contracts.codec import frame_message, record_message
from flyball_contracts.config import Config
from flyball_contracts.frame import make_frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import HOST
from flyball_contracts.records import Inventory, NodeEvent

_LOG = logging.getLogger(__name__)
_DROPS_EVERY_S = 10.0
_READ_DURATION = HOST.column("flyball.agent.read.duration")
_DROPPED = HOST.column("flyball.agent.records{state=dropped}")


class AgentReport(NamedTuple):
    """What a run of the agent did; ``frames`` were produced.

    The others count all messages: ``carried`` were in the spool at the start, ``spooled`` are in it at the end,
    and ``sent + carried = delivered + dropped + spooled``.
    """

    ticks: int
    skipped: int
    frames: int
    sent: int
    carried: int
    delivered: int
    dropped: int
    spooled: int


class Snapshot(NamedTuple):
    """What this node measures now."""

    readings: list[Reading]
    inventory: Inventory


def run_agent(
    config: Config,
    *,
    stop: threading.Event,
    max_ticks: int | None = None,
    collectors: Sequence[Collector] | None = None,
    clock: Clock | None = None,
    wait: Callable[[float], bool] | None = None,
) -> AgentReport:
    """Measure this node and send it to Kafka until ``stop`` is set, or for ``max_ticks`` ticks.

    ``collectors``, ``clock`` and ``wait`` replace what the configuration and the system would give.
    Raises :class:`ConfigError` for a configuration that cannot work; a broker that is away does not raise.
    """
    clock = clock or Clock()
    now_ns = clock.wall_ns()
    identity = identify(config.agent, now_ns)
    with ExitStack() as stack:
        if collectors is None:
            sources = open_sources(config.agent, identity.node)
            for name, absent in sources.absent.items():
                _LOG.info("no %s: %s; %s", name, absent.reason, absent.remedy)
            collectors = sources.collectors
        for collector in collectors:
            stack.callback(collector.close)
        client_id = f"flyball-agent-{identity.node}"
        spool = open_spool(config.agent, identity.node)
        if spool is not None:
            stack.callback(spool.close)
        outbox = Outbox(config.kafka, client_id=client_id, queue_bytes=config.agent.queue_bytes, spool=spool)
        stack.callback(outbox.close)
        agent = _Agent(config, identity, outbox, collectors, clock)
        agent.tell(node_event(identity.node, now_ns, "agent_started", message=f"epoch {identity.epoch}"))
        try:
            for tick in ticks(round(config.agent.period_s * NS_PER_S), clock, wait or stop.wait):
                agent.take(tick)
                now_ns = tick.time_ns
                if agent.ticks == max_ticks or stop.is_set():
                    break
        finally:
            agent.tell(node_event(identity.node, now_ns, "agent_stopped", message=f"after {agent.ticks} ticks"))
    return agent.report()


def read_once(config: Config, *, wait: Callable[[float], object] = time.sleep) -> Snapshot:
    """Measure this node once, without Kafka: two reads a period (at most 1 s) apart, so that counters have values."""
    now_ns = time.time_ns()
    identity = look(config.agent)
    collectors = open_sources(config.agent, identity.node).collectors
    try:
        period_s = min(config.agent.period_s, 1.0)
        period_ns = round(period_s * NS_PER_S)
        for collector in collectors:
            collector.read(now_ns, period_ns)
        wait(period_s)
        now_ns = time.time_ns()
        readings = [reading for collector in collectors for reading in collector.read(now_ns, period_ns)]
        parts = [collector.parts() for collector in collectors]
        return Snapshot(readings, build_inventory(config.agent, identity, parts, epoch=now_ns, time_ns=now_ns))
    finally:
        for collector in collectors:
            collector.close()


class _Agent:
    """State of one run."""

    def __init__(
        self, config: Config, identity: Identity, outbox: Outbox, collectors: Sequence[Collector], clock: Clock
    ) -> None:
        self.ticks = 0
        self._skipped = 0
        self._seq = 0
        self._read_ns = 0
        self._told_dropped = 0
        self._told_dropped_ns: int | None = None
        self._framed_dropped = 0
        self._failed: set[str] = set()
        self._clock = clock
        self._identity = identity
        self._outbox = outbox
        self._collectors = collectors
        self._inventory = InventoryKeeper(config.agent, identity)

    def take(self, tick: Tick) -> None:
        """Read everything at one tick and queue it."""
        self.ticks += 1
        self._skipped += tick.skipped
        before_ns = self._clock.monotonic_ns()
        readings = [reading for collector in self._collectors for reading in self._read(collector, tick)]
        previous_read_ns, self._read_ns = self._read_ns, self._clock.monotonic_ns() - before_ns
        inventory = self._inventory.due([collector.parts() for collector in self._collectors], tick.time_ns)
        if inventory is not None:
            self._outbox.send(record_message(inventory, self._source))
        for reading in readings:
            if reading.schema == HOST.schema:
                self._add_own(reading, previous_read_ns)
            self._send_frame(reading, tick)
        self._send_events(tick)
        self._outbox.poll()

    def tell(self, event: NodeEvent) -> None:
        """Queue one event."""
        self._outbox.send(record_message(event, self._source))

    def report(self) -> AgentReport:
        """Counts of the run so far."""
        box = self._outbox
        return AgentReport(
            self.ticks, self._skipped, self._seq, box.sent, box.carried, box.delivered, box.dropped, box.spooled
        )

    @property
    def _source(self) -> str:
        return f"/agent/{self._identity.node}"

    def _read(self, collector: Collector, tick: Tick) -> list[Reading]:
        try:
            return collector.read(tick.time_ns, tick.period_ns)
        except Exception:  # the others must go on; a collector's own faults are values and events, not this
            if collector.name not in self._failed:
                _LOG.exception("the %s collector failed; its frames are left out while it does", collector.name)
            self._failed.add(collector.name)
            return []

    def _add_own(self, reading: Reading, previous_read_ns: int) -> None:
        """Add what only the agent knows of itself."""
        dropped = self._outbox.dropped
        reading.values[0, _READ_DURATION] = previous_read_ns / NS_PER_S if previous_read_ns else np.nan
        reading.values[0, _DROPPED] = dropped - self._framed_dropped
        self._framed_dropped = dropped

    def _send_frame(self, reading: Reading, tick: Tick) -> None:
        frame = make_frame(
            reading.values,
            schema=reading.schema,
            node=self._identity.node,
            boot_id=self._identity.boot_id,
            epoch=self._identity.epoch,
            seq=self._seq,
            time_ns=tick.time_ns,
            period_ns=tick.period_ns,
            inventory_epoch=self._inventory.epoch,
            read_ns=self._read_ns,
        )
        self._seq += 1
        self._outbox.send(frame_message(frame))

    def _send_events(self, tick: Tick) -> None:
        for collector in self._collectors:
            for event in collector.events():
                self.tell(event)
        if tick.jump_ns:
            message = f"the clock was set by {tick.jump_ns / NS_PER_S:+.3f} s"
            self.tell(
                node_event(self._identity.node, tick.time_ns, "clock_jumped", severity="warning", message=message)
            )
        self._tell_drops(tick)

    def _tell_drops(self, tick: Tick) -> None:
        """Tell how many records were given up, in all, when it is more than was told and not told just now."""
        dropped = self._outbox.dropped
        told_ns = self._told_dropped_ns
        recent = told_ns is not None and abs(tick.time_ns - told_ns) < _DROPS_EVERY_S * NS_PER_S
        if dropped == self._told_dropped or recent:
            return
        self._told_dropped, self._told_dropped_ns = dropped, tick.time_ns
        message = f"{dropped} records given up since the agent started"
        event = node_event(self._identity.node, tick.time_ns, "records_dropped", severity="warning", message=message)
        self.tell(event)
