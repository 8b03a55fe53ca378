"""A program that runs an actuator until SIGTERM.

Arguments: bootstrap, group, the platform's URL or the effects file, the ledger file, and perhaps the audit file.
"""

import logging
import signal
import sys
import threading
from pathlib import Path

from tests.actuators.loop import FilePlatform, unlimited
from tests.actuators.samples import NOW

from flyball_actuators.platforms import Platform, SimulatedPlatform
from flyball_actuators.service import run_actuator


def main(bootstrap: str, group: str, where: str, ledger: str, audit: str = "") -> None:
    logging.basicConfig(level="INFO", format="%(asctime)s.%(msecs)03d %(name)s %(message)s")
    stop = threading.Event()

    def end(_signum: int, _frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    platform: Platform = SimulatedPlatform(where, 5.0) if where.startswith("http") else FilePlatform(Path(where))
    config = unlimited(bootstrap, group, ledger=ledger, audit=audit or None)
    run_actuator(config, stop=stop, platform=platform, clock=lambda: NOW)


if __name__ == "__main__":
    main(*sys.argv[1:])
