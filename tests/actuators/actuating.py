"""A program that runs an actuator until SIGTERM.

Arguments: bootstrap, group, the platform's URL or the effects file, the ledger file.
"""

import logging
import signal
import sys
import threading
from pathlib import Path

from tests.actuators.loop import FilePlatform, config_for
from tests.actuators.samples import NOW

from flyball_actuators.parameters import RateParameters
from flyball_actuators.platforms import Platform, SimulatedPlatform
from flyball_actuators.service import run_actuator


def main(bootstrap: str, group: str, where: str, ledger: str) -> None:
    logging.basicConfig(level="INFO", format="%(asctime)s.%(msecs)03d %(name)s %(message)s")
    stop = threading.Event()

    def end(_signum: int, _frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    platform: Platform = SimulatedPlatform(where, 5.0) if where.startswith("http") else FilePlatform(Path(where))
    config = config_for(
        bootstrap, group, mode="live", ledger=ledger, per_target=RateParameters(1000), per_cell=RateParameters(100_000)
    )
    run_actuator(config, stop=stop, platform=platform, clock=lambda: NOW)


if __name__ == "__main__":
    main(*sys.argv[1:])
