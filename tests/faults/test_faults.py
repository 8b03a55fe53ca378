"""The gate: whatever is killed or stands still, what is decided happens once, and the fleet ends as it should."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.faults.audit import table
from tests.faults.platform import EndState
from tests.faults.scenario import fleet, settings
from tests.faults.schedule import Fault, schedule
from tests.faults.trial import failed, judge, run, shown

pytestmark = pytest.mark.integration
SEED = 7
SPACING_S = 3.0
"""Mean seconds of the wall clock between two faults."""
FAST, UNDISTURBED_SPEED = 2.0, 8.0
"""Times real time: what a loaded machine carries while it starts processes again, and what it carries in peace."""
BUSY_S = 180.0
AWAY_S, AWAY_SPEED = 600.0, 6.0
"""Event seconds without any worker, and how fast they pass."""
BEFORE_S, APART_S, AFTER_S = 15.0, 11.0, 40.0
"""Seconds of the wall clock before, between the first worker's return and the second's, and of bursts after it."""


@pytest.fixture(scope="module")
def undisturbed(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> EndState:
    """The end of a fleet without trouble, which follows from the specifications alone, however long it was busy."""
    described = fleet(BUSY_S, SEED)
    folder = tmp_path_factory.mktemp("undisturbed")
    calm = run(folder, kafka_jars, (settings(UNDISTURBED_SPEED), described, UNDISTURBED_SPEED), BUSY_S)
    findings = judge(calm, None)
    assert [*failed(findings), *calm.ended] == [], f"without any fault:\n{table(findings)}"
    return calm.end


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("faults", "speed"), [(20, 1.0), (40, FAST)], ids=["at real time", "faster"])
def test_faults_leave_no_trace(
    kafka_jars: Path, tmp_path: Path, undisturbed: EndState, faults: int, speed: float
) -> None:
    span_s = faults * SPACING_S
    _leave_no_trace(tmp_path, kafka_jars, undisturbed, schedule(SEED, faults, span_s), span_s, speed)


@pytest.mark.timeout(900)
def test_ten_minutes_without_a_worker_leave_no_trace(kafka_jars: Path, tmp_path: Path, undisturbed: EndState) -> None:
    away_s = AWAY_S / AWAY_SPEED
    away = [Fault(BEFORE_S, f"worker-{i + 1}", "kill", away_s + i * APART_S) for i in range(2)]
    span_s = BEFORE_S + away_s + APART_S + AFTER_S
    _leave_no_trace(tmp_path, kafka_jars, undisturbed, away, span_s, AWAY_SPEED)


def _leave_no_trace(
    folder: Path, jars: Path, undisturbed: EndState, faults: Sequence[Fault], span_s: float, speed: float
) -> None:
    described = fleet(span_s * speed, SEED)
    hit = run(folder, jars, (settings(speed), described, speed), span_s * speed, faults, undisturbed)
    findings = judge(hit, undisturbed)
    text = shown(hit, findings, f"seed {SEED}, {speed:g} x real time")
    print(text)
    assert failed(findings) == [], text
