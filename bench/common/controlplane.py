"""The built control plane of the benchmarks that run on one."""

import argparse
from pathlib import Path

from tests.kubernetes.controlplane import missing

BUILT = Path(__file__).resolve().parents[2] / ".cache" / "controlplane"


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--controlplane``."""
    parser.add_argument("--controlplane", type=Path, metavar="FOLDER", help="what infra/controlplane/fetch prints")


def programs(parser: argparse.ArgumentParser, folder: Path | None) -> Path:
    """The folder that was given, or the newest that was built; ends with a usage error where a program is missing."""
    found = folder or max(BUILT.glob("*"), default=BUILT)
    if (reason := missing(found)) is not None:
        parser.error(reason)
    return found
