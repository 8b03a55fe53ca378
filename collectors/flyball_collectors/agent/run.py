"""Runs the agent: opens what it needs, ticks, and closes."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from flyball_collectors.agent.delivery.null_outbox import NullOutbox
from flyball_collectors.agent.delivery.outbox import Outbox
from flyball_collectors.agent.delivery.spooling import open_spool
from flyball_collectors.agent.identity import Identity, identify, is_newest, look
from flyball_collectors.agent.inventory import build_inventory, rows_of
from flyball_collectors.agent.loop import AgentLoop, AgentReport
from flyball_collectors.agent.memory import give_back
from flyball_collectors.agent.reload import ConfigSource
from flyball_collectors.agent.setup import Setup
from flyball_collectors.agent.sources import open_sources
from flyball_collectors.agent.ticker import Clock, ticks
from flyball_collectors.base import Collector, Reading
from flyball_collectors.parameters import AgentParameters
from flyball_contracts.config import Config
from flyball_contracts.config.constants import with_constants
from flyball_contracts.ids import NS_PER_S
from flyball_contracts.records import Inventory
from flyball_contracts.records.events import node_event

_STARTED_TICKS = 2
"""Counters need two reads, which also allocate every buffer."""
_EVENTS_EVERY_S = 0.5  # an event must not wait for the tick where the period is long


class Snapshot(NamedTuple):
    """Current measurements of this node."""

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
    source: ConfigSource | None = None,
) -> AgentReport:
    """Measure this node and send it to Kafka until ``stop`` is set, or for ``max_ticks`` ticks.

    With an empty ``kafka.bootstrap`` only the outputs of ``agent.export`` are fed. ``collectors``, ``clock`` and
    ``wait`` replace those of the configuration and the system. ``source`` is polled for a new configuration before each
    tick; one that cannot be applied is refused, and the old one stays. Raises :class:`ConfigError` for a configuration
    that cannot work; an unreachable broker does not raise.
    """
    clock = clock or Clock()
    now_ns = clock.wall_ns()
    identity = identify(config.agent, now_ns)
    with ExitStack() as stack:
        setup = Setup(config, identity.node, collectors)
        stack.callback(setup.close)
        outbox = _open_outbox(config, identity, clock, stack)
        stack.callback(outbox.close)
        agent = AgentLoop(setup, identity, outbox, clock)
        rest = wait or stop.wait

        def listen(seconds: float) -> bool:
            ends_ns = clock.monotonic_ns() + round(seconds * NS_PER_S)
            while (left_s := (ends_ns - clock.monotonic_ns()) / NS_PER_S) > _EVENTS_EVERY_S:
                if rest(_EVENTS_EVERY_S):
                    return True
                agent.send_events()
            return rest(max(left_s, 0.0))

        agent.publish(node_event(identity.node, now_ns, "agent_started", message=f"epoch {identity.epoch}"))
        for tick in ticks(lambda: round(setup.config.agent.period_s * NS_PER_S), clock, listen):
            if source is not None:
                agent.reconfigure(source.poll(), tick)
            agent.take(tick)
            now_ns = tick.time_ns
            if agent.ticks == _STARTED_TICKS:
                give_back()
            if agent.ticks == max_ticks or stop.is_set():
                break
        if is_newest(config.agent, identity):  # else another agent goes on with the node
            agent.announce_stop(now_ns)  # an error does not come here: it is no stop on purpose
    return agent.report()


def _open_outbox(config: Config, identity: Identity, clock: Clock, stack: ExitStack) -> Outbox | NullOutbox:
    if not config.kafka.bootstrap:
        return NullOutbox()
    spool = open_spool(config.agent, identity.node)
    if spool is not None:
        stack.callback(spool.close)
    return Outbox(
        config.kafka,
        client_id=f"flyball-agent-{identity.node}",
        queue_bytes=with_constants(AgentParameters, config.agent).queue_bytes,
        spool=spool,
        wall_ns=clock.wall_ns,
    )


def read_once(config: Config, *, wait: Callable[[float], object] = time.sleep) -> Snapshot:
    """Measure this node once, without Kafka: two reads a period (at most 1 s) apart, so that counters have values.

    A layout that is not due at the second read keeps the values of the first.
    """
    now_ns = time.time_ns()
    identity = look(config.agent)
    collectors = open_sources(config.agent, identity.node).collectors
    try:
        period_s = min(config.agent.period_s, 1.0)
        period_ns = round(period_s * NS_PER_S)
        found = {reading.schema: reading for collector in collectors for reading in collector.read(now_ns, period_ns)}
        wait(period_s)
        now_ns = time.time_ns()
        found |= {reading.schema: reading for collector in collectors for reading in collector.read(now_ns, period_ns)}
        parts = [collector.parts() for collector in collectors]
        inventory = build_inventory(config.agent, identity, parts, epoch=now_ns, time_ns=now_ns)
        return Snapshot([rows_of(reading, inventory.allocations) for reading in found.values()], inventory)
    finally:
        for collector in collectors:
            collector.close()
