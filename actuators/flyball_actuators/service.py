"""The actuator service: runs the loop, and starts it again when the topics have changed."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

from flyball_actuators.audit import Trail
from flyball_actuators.guard import longest_s
from flyball_actuators.ledger import Ledger
from flyball_actuators.loop import Loop
from flyball_actuators.platforms import Platform, Platforms, Served, make_platforms
from flyball_actuators.report import ActuatorReport
from flyball_actuators.session import Session, instance_name
from flyball_contracts.config import ActuatorConfig, Config
from flyball_contracts.errors import TransportError
from flyball_contracts.security.clear import plain_broker

_LOG = logging.getLogger(__name__)
_DAY_S = 86_400.0
_AGAIN_S = 1.0
_POLL_S = 0.05


def run_actuator(
    config: Config,
    *,
    stop: Event,
    ready: Callable[[], None] | None = None,
    beat: Callable[[], object] = lambda: None,
    platform: Platform | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> ActuatorReport:
    """Carry out decisions until ``stop`` is set.

    ``ready`` is called once partitions of the decisions are assigned, ``beat`` in each turn of the loop that can make
    progress; ``platform`` replaces all configured ones; ``clock`` is the wall clock in nanoseconds. Decisions are
    delivered at least once; each is carried out at most once, by one actuator of the group. Raises :class:`ConfigError`
    for settings that cannot work, :class:`TransportError` if the broker cannot be reached at the start or denies a
    required right.
    """
    settings = config.actuator
    _warn_of_plain_brokers(config)
    keep_ns = None if settings.clock == "event" else round(max(_DAY_S, longest_s(settings)) * 1e9)
    report, instance, logged, topic = ActuatorReport(), instance_name(), "", ""
    with (
        Ledger(Path(settings.ledger) if settings.ledger else None, keep_ns=keep_ns) as ledger,
        Trail(Path(settings.audit) if settings.audit else None, instance, settings, clock) as trail,
    ):
        while not stop.is_set():
            limits = Path(f"{settings.ledger}.power") if settings.ledger else None
            session = Session(config.kafka, settings.group, instance, stop, limits)
            platforms = _platforms(settings, session, platform)
            loop = Loop(config, session, ledger, trail, platforms, report, clock, stop, known=topic)
            try:
                loop.run(ready, beat)
            except TransportError as error:
                if not loop.started and not topic:
                    raise
                if loop.started:
                    _LOG.warning("%s: starting again; the ledger knows what was done", error)
                elif str(error) != logged:
                    _LOG.warning("%s; trying again", error)
                ready, logged, topic = None if loop.assigned else ready, str(error), loop.topic or topic
                stop.wait(_AGAIN_S)
            finally:
                loop.close()
                platforms.close()
    return report


def _warn_of_plain_brokers(config: Config) -> None:
    broker, settings = plain_broker(config.kafka), config.actuator
    if not broker or settings.mode != "live" or all(entry.driver == "simulated" for entry in settings.platforms):
        return
    signed, remedy = "signed, but ", "set security.protocol: sasl_ssl in kafka.client"
    if not settings.keys:
        signed, remedy = "unsigned, and ", f"{remedy}, and actuator.keys"
    _LOG.warning("kafka.bootstrap: decisions come %swithout TLS from %s; %s", signed, broker, remedy)


def _platforms(settings: ActuatorConfig, session: Session, platform: Platform | None) -> Platforms:
    if platform is None:
        return make_platforms(settings, session.replicas, session.busy, session.declared)
    return Platforms([Served(("*",), platform, _POLL_S)], live=settings.mode == "live")
