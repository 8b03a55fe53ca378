"""A program that runs an actuator whose driver is killed in the middle of its first call.

Arguments: bootstrap, group, effects file, ledger file, and ``before`` or ``after`` the effect.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from tests.actuators.loop import FileDriver, config_for
from tests.actuators.samples import NOW

from flyball_actuators.drivers import Answer
from flyball_actuators.service import run_actuator
from flyball_contracts.records import AnyDecision


class Killed(FileDriver):
    """Ends its own process as a power cut would."""

    when = "after"

    def apply(self, decision: AnyDecision) -> Answer:
        if self.when == "after":
            super().apply(decision)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


def main(bootstrap: str, group: str, effects: str, ledger: str, when: str) -> None:
    driver = Killed(Path(effects))
    driver.when = when
    config = config_for(bootstrap, group, mode="live", ledger=ledger)
    run_actuator(config, stop=threading.Event(), driver=driver, clock=lambda: NOW)


if __name__ == "__main__":
    main(*sys.argv[1:])
