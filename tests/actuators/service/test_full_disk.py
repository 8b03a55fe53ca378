"""An actuator whose disk is full: it ends and says so; another goes on, and nothing is lost or done twice."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.actuators.loop import PARTITIONS, FilePlatform, ended, outcomes, publish, running, unlimited, wait_for
from tests.actuators.samples import inventory, scale, spec
from tests.brokers.embedded import EmbeddedBroker
from tests.full_disk import on_small_disk

DECISIONS = 60


@pytest.mark.parametrize("kept", ["ledger", "audit"])
def test_it_ends_with_the_place_and_another_goes_on(
    kept: str, embedded_broker: Callable[..., EmbeddedBroker], unique: Callable[[str], str], tmp_path: Path
) -> None:
    bootstrap, group = embedded_broker(PARTITIONS).bootstrap, unique("actuator")
    (disk := tmp_path / "disk").mkdir()
    file, effects = disk / kept, tmp_path / "effects"
    ids = [f"d{n}" for n in range(DECISIONS)]
    publish(bootstrap, *(spec(f"w-{id_}") for id_ in ids), inventory(replicas=4))
    publish(bootstrap, *(scale(id_, workload=f"w-{id_}") for id_ in ids))

    files = (file, "") if kept == "ledger" else (tmp_path / "first", file)
    program = (sys.executable, "-m", "tests.actuators.actuating")

    done = on_small_disk(disk, 32, *program, bootstrap, group, effects, *files)

    last = done.stderr.splitlines()[-1]
    assert f"NotWrittenError: actuator.{kept}: {file} cannot be written: No space left on device" in last
    assert "make room on the disk, then start the actuator again" in last
    platform = FilePlatform(effects)
    assert len(platform.effects()) < DECISIONS
    with running(unlimited(bootstrap, f"{group}-again", ledger=str(tmp_path / "ledger")), platform):
        wait_for(ended(bootstrap, DECISIONS), "all decisions")
    assert sorted(platform.effects()) == sorted(set(platform.effects()))
    finals = {outcome.decision: outcome for outcome in outcomes(bootstrap) if outcome.final}
    assert set(finals) == set(ids)
    done_ids = {id_ for id_, outcome in finals.items() if outcome.status == "done"}
    assert done_ids <= set(platform.effects()), "what is said to be done was done"
    assert done_ids
