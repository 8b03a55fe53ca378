"""When the broker does not take what the lanes send, the worker ends and says why; nothing is acknowledged."""

import signal
from collections.abc import Callable
from typing import cast

from tests.brokers.embedded import EmbeddedBroker
from tests.brokers.faults import ApiKey, Fault
from tests.streams.worker.rig import Process, Rig, Simulated

from flyball_contracts.topics import TELEMETRY

FAILED = 70
REFUSALS = 50


def refuse_output(rig: Rig) -> None:
    cast(EmbeddedBroker, rig.broker).push_request_errors(ApiKey.PRODUCE, [Fault.TOPIC_AUTHORIZATION_FAILED] * REFUSALS)


def check_ended(worker: Process) -> None:
    assert worker.process.wait(90.0) == FAILED
    text = worker.text()
    assert "worker ends: " in text
    assert "authorization failed" in text.lower()
    assert "Traceback" not in text


def test_first_snapshots_are_refused(embedded_rig: Callable[..., Rig]) -> None:
    rig = embedded_rig()
    refuse_output(rig)
    check_ended(rig.worker(joined=False))


def test_results_are_refused(embedded_rig: Callable[..., Rig]) -> None:
    rig = embedded_rig(snapshot_every_s=1000.0)
    simulated = Simulated(12)
    rig.send(simulated.start)
    worker = rig.worker()
    worker.process.send_signal(signal.SIGSTOP)
    for tick in simulated.ticks:
        rig.send(tick)
    refuse_output(rig)
    worker.process.send_signal(signal.SIGCONT)
    check_ended(worker)
    assert sum(rig.committed(TELEMETRY.name).values()) < sum(rig.ends(TELEMETRY.name).values())
