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
FAULTS, SPAN_S = 30, 90.0
"""Of each of the two runs, and the seconds of the wall clock that they are spread over."""
FAST, UNDISTURBED_SPEED = 4.0, 8.0
"""Times real time: what a loaded machine carries while it starts processes again, and what it carries in peace."""
BACKLOG_S, AFTER_S = 600.0, 60.0
"""Event seconds without any worker, and what is left to do after them."""


@pytest.fixture(scope="module")
def undisturbed(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> EndState:
    """The end of a fleet without trouble, which follows from the specifications alone, however long it was busy."""
    busy_s = SPAN_S * 2
    described = fleet(busy_s, SEED)
    folder = tmp_path_factory.mktemp("undisturbed")
    calm = run(folder, kafka_jars, (settings(UNDISTURBED_SPEED), described, UNDISTURBED_SPEED), busy_s)
    findings = judge(calm, None)
    assert [*failed(findings), *calm.ended] == [], f"without any fault:\n{table(findings)}"
    return calm.end


@pytest.mark.timeout(600)
def test_thirty_faults_at_real_time_leave_no_trace(kafka_jars: Path, tmp_path: Path, undisturbed: EndState) -> None:
    _leaves_no_trace(tmp_path, kafka_jars, undisturbed, 1.0, SPAN_S, schedule(SEED, FAULTS, SPAN_S))


@pytest.mark.timeout(900)
def test_thirty_faults_and_ten_minutes_without_a_worker_leave_no_trace(
    kafka_jars: Path, tmp_path: Path, undisturbed: EndState
) -> None:
    faults = schedule(SEED + 1, FAULTS, SPAN_S)
    away_s = max(fault.until_s for fault in faults) + 5.0
    faults += [Fault(away_s, f"worker-{i}", "kill", BACKLOG_S / FAST) for i in (1, 2)]
    busy_s = FAST * away_s + BACKLOG_S + AFTER_S
    _leaves_no_trace(tmp_path, kafka_jars, undisturbed, FAST, busy_s, faults)


def _leaves_no_trace(
    folder: Path, jars: Path, undisturbed: EndState, speed: float, busy_s: float, faults: Sequence[Fault]
) -> None:
    described = fleet(busy_s, SEED)
    hit = run(folder, jars, (settings(speed), described, speed), busy_s, faults, undisturbed)
    findings = judge(hit, undisturbed)
    text = shown(hit, findings, f"{len(faults)} faults, {speed:g} x real time")
    print(text)
    assert failed(findings) == [], text
