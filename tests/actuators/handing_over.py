"""A program that runs one of several actuators until SIGTERM; the platforms know it by its token.

Arguments: bootstrap, group, the ledger file, the kill switch, and CELL=URL of each platform. The token is in TOKEN.
"""

import logging
import signal
import sys
import threading

from tests.actuators.loop import config_for
from tests.actuators.samples import NOW

from flyball_actuators.parameters import RateParameters
from flyball_actuators.service import run_actuator
from flyball_contracts.config import PlatformConfig

TOKEN = "TOKEN"


def main(bootstrap: str, group: str, ledger: str, kill_switch: str, *sites: str) -> None:
    logging.basicConfig(level="INFO", format="%(asctime)s.%(msecs)03d %(name)s %(message)s")
    stop = threading.Event()

    def end(_signum: int, _frame: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    platforms = tuple(
        PlatformConfig(driver="webhook", url=url, cells=(cell,), token_env=TOKEN, poll_s=0.05, timeout_s=60.0)
        for cell, url in (site.split("=", 1) for site in sites)
    )
    config = config_for(
        bootstrap, group, mode="live", ledger=ledger, allow=("*",), kill_switch=kill_switch, platforms=platforms,
        per_target=RateParameters(1000), per_cell=RateParameters(1000),
    )  # fmt: skip
    run_actuator(config, stop=stop, clock=lambda: NOW)


if __name__ == "__main__":
    main(*sys.argv[1:])
