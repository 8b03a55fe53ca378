"""The work of the agent at each tick: read, lay out, send."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from flyball_collectors.agent.delivery.null_outbox import NullOutbox
from flyball_collectors.agent.delivery.outbox import Outbox
from flyball_collectors.agent.identity import Identity
from flyball_collectors.agent.inventory import InventoryKeeper, rows_of
from flyball_collectors.agent.last_inventory import LastInventory
from flyball_collectors.agent.setup import Setup
from flyball_collectors.agent.ticker import Clock, Tick
from flyball_collectors.base import NAN, Collector, KeyedReading, Reading
from flyball_collectors.export import Framed
from flyball_collectors.kmsg import EventMerger
from flyball_contracts.codec import frame_message, record_message
from flyball_contracts.config import Config
from flyball_contracts.errors import ConfigError
from flyball_contracts.frame import make_frame
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.metrics import HOST
from flyball_contracts.records import NodeEvent
from flyball_contracts.records.events import node_event

_LOG = logging.getLogger(__name__)
_DROPS_EVERY_S = 10.0


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


class AgentLoop:
    """State of one run; call :meth:`take` at each tick, and :meth:`send_events` as often as needed."""

    def __init__(self, setup: Setup, identity: Identity, outbox: Outbox | NullOutbox, clock: Clock) -> None:
        self.ticks = 0
        self._skipped = 0
        self._seq = 0
        self._read_ns = 0
        self._reported_dropped = 0
        self._reported_dropped_ns: int | None = None
        self._own: dict[str, float] = {}  # the agent's own counts so far
        self._passed_ns = 0  # over all ticks, whatever the clock was set to
        self._framed_ns: dict[int, int] = {}  # when each layout had its last frame, as passed time
        self._failed: set[str] = set()
        self._clock = clock
        self._identity = identity
        self._outbox = outbox
        self._setup = setup
        self._inventory = InventoryKeeper(
            setup.config.agent, identity, LastInventory(setup.config.agent, identity.node)
        )
        self._merger = EventMerger()
        self._sent_events: list[NodeEvent] = []

    def take(self, tick: Tick) -> None:
        """Read everything at one tick and queue it."""
        self.ticks += 1
        self._skipped += tick.skipped
        self._passed_ns += tick.period_ns
        self._setup.look_again(self._passed_ns)
        before_ns = self._clock.monotonic_ns()
        readings = [reading for collector in self._setup.collectors for reading in self._read(collector, tick)]
        previous_read_ns, self._read_ns = self._read_ns, self._clock.monotonic_ns() - before_ns
        epoch = self._inventory.epoch
        inventory = self._inventory.due([collector.parts() for collector in self._setup.collectors], tick.time_ns)
        if inventory is not None:
            self._outbox.send(record_message(inventory, self._source))
            if inventory.epoch != epoch:
                self._outbox.settle()  # frames name it, and partitions keep no common order
        frames: list[Framed] = []
        for found in readings:
            reading = rows_of(found, self._inventory.allocations)
            if reading.schema == HOST.schema:
                self._add_own(reading, tick, previous_read_ns)
            frames.append(self._send_frame(reading, tick))
        events = self._events_of_tick(tick)
        self._outbox.poll()
        if self._inventory.current is not None:
            self._setup.exports.take(tick.time_ns, self._passed_ns, frames, self._inventory.current, events)

    def send_events(self) -> None:
        """Send the collectors' events; before the first inventory their devices would have no names."""
        if self._inventory.current is not None:
            events = self._merger.settle(self._setup.events(), self._inventory.devices)
            for event in events:
                self.publish(event)
                level = logging.INFO if event.severity == "info" else logging.WARNING
                _LOG.log(level, "%s %s: %s", event.kind, event.device or event.node, event.message)
            self._sent_events += events

    def reconfigure(self, found: Config | ConfigError | None, tick: Tick) -> None:
        """Apply another configuration, or report why not; frame numbers continue either way."""
        if found is None:
            return
        try:
            if isinstance(found, ConfigError):
                raise found
            box, kafka = self._outbox, found.kafka
            moves = kafka.bootstrap and kafka != self._setup.config.kafka
            way = box.prepare(kafka) if isinstance(box, Outbox) and moves else None
            message = self._setup.change(found)
        except Exception as error:  # whatever the error, the agent continues as before
            reason = str(error) if isinstance(error, ConfigError) else f"unexpected {type(error).__name__}: {error}"
            _LOG.warning("the new configuration is refused, the old one stays: %s", reason)
            self.publish(
                node_event(self._identity.node, tick.time_ns, "config_refused", severity="warning", message=reason)
            )
            return
        if isinstance(box, Outbox) and way is not None:
            box.switch_to(way)
        self._inventory.reconfigure(self._setup.config.agent)
        _LOG.warning("the configuration was reloaded; %s", message)
        self.publish(node_event(self._identity.node, tick.time_ns, "config_reloaded", message=message))

    def announce_stop(self, time_ns: int) -> None:
        """Queue the last records: no frame follows, and that is no fault."""
        self.publish(node_event(self._identity.node, time_ns, "agent_stopped", message=f"after {self.ticks} ticks"))
        inventory = self._inventory.last(time_ns)
        if inventory is not None:
            self._outbox.send(record_message(inventory, self._source))

    def publish(self, event: NodeEvent) -> None:
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

    def _read(self, collector: Collector, tick: Tick) -> Sequence[Reading | KeyedReading]:
        try:
            return collector.read(tick.time_ns, tick.period_ns)
        except Exception:  # the others must go on; collectors report their own faults as values and events
            if collector.name not in self._failed:
                _LOG.exception("the %s collector failed; its frames are left out while it does", collector.name)
            self._failed.add(collector.name)
            return []

    def _add_own(self, reading: Reading, tick: Tick, previous_read_ns: int) -> None:
        """Add the agent's metrics of itself; its counters rise from zero when it starts."""
        box, row, spool = self._outbox, reading.values[0], self._outbox.spool_stats
        taken, lost = self._setup.exports.requests
        gauges = {"flyball.agent.read.duration": previous_read_ns / NS_PER_S if previous_read_ns else NAN}
        counts: dict[str, float] = {
            "flyball.agent.records{state=produced}": box.sent,
            "flyball.agent.records{state=delivered}": box.delivered,
            "flyball.agent.records{state=dropped}": box.dropped,
            "flyball.agent.ticks{state=skipped}": self._skipped,
            "flyball.agent.export.requests{state=delivered}": taken,
            "flyball.agent.export.requests{state=dropped}": lost,
        }
        if spool is not None:
            counts["flyball.agent.records{state=spooled}"] = spool.spooled
            gauges["flyball.agent.spool.usage"] = spool.bytes
            oldest_ns = tick.time_ns if spool.oldest_ns is None else spool.oldest_ns
            gauges["flyball.agent.spool.age"] = max(tick.time_ns - oldest_ns, 0) / NS_PER_S
        for key, value in gauges.items():
            row[HOST.column(key)] = value
        for key, value in counts.items():
            row[HOST.column(key)] = value - self._own.get(key, 0.0)
        self._own = counts

    def _send_frame(self, reading: Reading, tick: Tick) -> Framed:
        """Send one frame; its counters cover the time since the previous frame of its layout."""
        before_ns = self._framed_ns.get(reading.schema, self._passed_ns - tick.period_ns)
        framed = Framed(reading, self._passed_ns - before_ns or tick.period_ns)
        self._framed_ns[reading.schema] = self._passed_ns
        frame = make_frame(
            reading.values,
            schema=reading.schema,
            node=self._identity.node,
            boot_id=self._identity.boot_id,
            epoch=self._identity.epoch,
            seq=self._seq,
            time_ns=tick.time_ns,
            period_ns=framed.period_ns,
            inventory_epoch=self._inventory.epoch,
            read_ns=self._read_ns,
        )
        self._seq += 1
        self._outbox.send(frame_message(frame))
        return framed

    def _events_of_tick(self, tick: Tick) -> list[NodeEvent]:
        """Send the agent's own events and the collectors'; return the collectors' since the tick before."""
        self.send_events()
        events, self._sent_events = self._sent_events, []
        if tick.jump_ns:
            message = f"the clock was set by {tick.jump_ns / NS_PER_S:+.3f} s"
            self.publish(
                node_event(self._identity.node, tick.time_ns, "clock_jumped", severity="warning", message=message)
            )
        self._publish_drops(tick)
        return events

    def _publish_drops(self, tick: Tick) -> None:
        """Publish the total of dropped records, if it has risen and the last report is not recent."""
        dropped = self._outbox.dropped
        reported_ns = self._reported_dropped_ns
        recent = reported_ns is not None and abs(tick.time_ns - reported_ns) < _DROPS_EVERY_S * NS_PER_S
        if dropped == self._reported_dropped or recent:
            return
        self._reported_dropped, self._reported_dropped_ns = dropped, tick.time_ns
        message = f"{dropped} records given up since the agent started"
        event = node_event(self._identity.node, tick.time_ns, "records_dropped", severity="warning", message=message)
        self.publish(event)
