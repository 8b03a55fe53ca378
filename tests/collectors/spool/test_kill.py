"""The spool against kills and damage; `bench/agent.py kills` makes the thousand of the full claim."""

from pathlib import Path

import pytest
from tests.collectors.spool.spool_kills import SMALL, UNBOUNDED, torture

KILLS = 50


@pytest.mark.parametrize("budget", [UNBOUNDED, SMALL])
def test_kills_and_damage_lose_nothing_uncounted(tmp_path: Path, budget: int) -> None:
    survived = torture(tmp_path / "spool", budget, KILLS)
    assert survived.damaged > KILLS // 5
    assert survived.appended > KILLS
