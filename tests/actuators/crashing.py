"""A program that runs an actuator which is killed in the middle of its first submission.

Arguments: bootstrap, group, the platform's URL or the effects file, the ledger file, and ``before`` or ``after``.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from tests.actuators.loop import FilePlatform, config_for
from tests.actuators.samples import NOW

from flyball_actuators.platforms import Handle, Platform, Rejected, SimulatedPlatform
from flyball_actuators.service import run_actuator
from flyball_contracts.records import AnyDecision, SubjectState


def deadly(platform: Platform, when: str) -> Platform:
    """The platform, whose first submission ends this process as a power cut would."""
    submit = platform.submit

    def cut(decision: AnyDecision, observed: SubjectState, *, dry_run: bool) -> Handle | Rejected:
        if when == "after":
            submit(decision, observed, dry_run=dry_run)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    platform.submit = cut  # type: ignore[method-assign]
    return platform


def main(bootstrap: str, group: str, where: str, ledger: str, when: str) -> None:
    platform: Platform = SimulatedPlatform(where, 5.0) if where.startswith("http") else FilePlatform(Path(where))
    config = config_for(bootstrap, group, mode="live", ledger=ledger)
    run_actuator(config, stop=threading.Event(), platform=deadly(platform, when), clock=lambda: NOW)


if __name__ == "__main__":
    main(*sys.argv[1:])
