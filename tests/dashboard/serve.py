"""Serve the dashboard for a test: ``python serve.py BOOTSTRAP`` prints its URL and ends on SIGTERM."""

import signal
import sys
import threading
from types import FrameType

from flyball_contracts.config import Config, DashboardConfig, KafkaConfig
from flyball_streams.dashboard.run import run_dashboard

stop = threading.Event()


def end(_number: int, _frame: FrameType | None) -> None:
    stop.set()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    config = Config(kafka=KafkaConfig(bootstrap=sys.argv[1]), dashboard=DashboardConfig(port=0))
    run_dashboard(config, stop=stop, ready=lambda url: print(url, flush=True))
