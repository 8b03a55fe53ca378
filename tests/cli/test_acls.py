"""`flyball topics --acls`: the rights that are printed, and the copy in infra/kafka."""

from pathlib import Path

import pytest
from tests.cli.shell import flyball

from flyball_contracts.config import Config
from flyball_contracts.rights import roles

INFRA = Path(__file__).resolve().parents[2] / "infra" / "kafka"
