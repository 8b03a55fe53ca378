"""What the demo's worker signs is within the scope of the key that the demo's actuator knows."""

from pathlib import Path

import pytest

from flyball_cli.demo.services import signing
from flyball_contracts.config import Config
from flyball_contracts.records.subjects import POOL, covered, subject_of_node


@pytest.mark.parametrize("subject", ["chat", f"{POOL}burst", subject_of_node("gpu-b-003")])
def test_the_key_covers_whatever_decisions_are_about(subject: str, tmp_path: Path) -> None:
    (key,) = signing(Config(), tmp_path).actuator.keys
    assert covered(subject, key.workloads)
