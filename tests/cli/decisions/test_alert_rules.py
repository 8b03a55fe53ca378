"""The alert rules: the copy is what is printed, and each series in them is one that agents export."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from flyball_cli.incidents.rules import RULES, selectors
from flyball_cli.main import flyball
from flyball_collectors.export.prometheus import _columns  # pyright: ignore[reportPrivateUsage]
from flyball_contracts.metrics import LAYOUTS

COPY = Path(__file__).resolve().parents[3] / "infra" / "alerts" / "flyball.rules.yaml"


def test_the_copy_is_what_is_printed() -> None:
    printed = CliRunner().invoke(flyball, ["incidents", "rules"]).output
    assert printed == COPY.read_text(), "flyball incidents rules > infra/alerts/flyball.rules.yaml"


def test_every_series_is_one_that_agents_export() -> None:
    exported = {
        column.sample + ("{" + ",".join(f'{k}="{v}"' for k, v in column.labels.items()) + "}" if column.labels else "")
        for layout in LAYOUTS.values()
        for column in _columns(layout.schema)
    }
    known = selectors()
    used = {known[key] for rule in RULES for key in re.findall("«([^»]*)»", rule.expr)}
    assert used
    assert used <= exported
    rules = yaml.safe_load(COPY.read_text())["groups"][0]["rules"]
    assert {
        name for rule in rules for name in re.findall(r"[a-z_]+(?:\{[^}]*\})?(?=\[| [><])", rule["expr"])
    } <= exported


@pytest.mark.integration
def test_vmalert_takes_them() -> None:
    binary = shutil.which("vmalert") or str(Path(os.environ.get("FLYBALL_VICTORIA", "")).with_name("vmalert"))
    if not Path(binary).is_file():
        pytest.skip("no vmalert beside FLYBALL_VICTORIA; run infra/victoria/fetch")
    done = subprocess.run([binary, "-dryRun", f"-rule={COPY}"], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
