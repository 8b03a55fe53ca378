"""The gate: whatever is killed or stands still, what is decided happens once, and the fleet ends as it should."""

from pathlib import Path

import pytest
from tests.faults.audit import table
from tests.faults.scenario import fleet, settings
from tests.faults.schedule import schedule
from tests.faults.trial import failed, judge, run, shown

pytestmark = pytest.mark.integration
FAULTS, SEED = 60, 7
SPAN_S = 180.0
SPEED, UNDISTURBED_SPEED = 2.0, 8.0
"""Times real time: what a loaded machine carries while it starts processes again."""


@pytest.mark.timeout(900)
def test_sixty_faults_leave_no_trace(kafka_jars: Path, tmp_path: Path) -> None:
    busy_s = SPAN_S * SPEED
    described = fleet(busy_s, SEED)
    calm = run(
        tmp_path / "undisturbed", kafka_jars, (settings(UNDISTURBED_SPEED), described, UNDISTURBED_SPEED), busy_s
    )
    findings = judge(calm, None)
    assert [*failed(findings), *calm.ended] == [], f"without any fault:\n{table(findings)}"
    faults = schedule(SEED, FAULTS, SPAN_S)
    hit = run(tmp_path / "disturbed", kafka_jars, (settings(SPEED), described, SPEED), busy_s, faults, calm.end)
    findings = judge(hit, calm.end)
    text = shown(hit, findings, f"seed {SEED}, {SPEED:g} x real time")
    print(text)
    assert failed(findings) == [], text
