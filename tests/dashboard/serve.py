"""A dashboard in a process of its own: NiceGUI allows one in a process, and ours has to end cleanly."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from flyball_contracts.config import Config, DashboardConfig, KafkaConfig
from flyball_streams.dashboard.run import run_dashboard

ROOT = Path(__file__).resolve().parents[2]
END_S = 30


@contextmanager
def serving(bootstrap: str, folder: Path, token: str = "", certificate: str = "") -> Generator[str]:
    """The page's URL; afterwards the process has ended well, printed nothing, and left no file in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{folder.name}.log"
    as_users = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}  # NiceGUI looks
    paths = [str(ROOT / "streams"), str(ROOT / "models"), str(ROOT / "contracts")]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, __file__, bootstrap, certificate],
            cwd=folder,
            env={**as_users, "PYTHONPATH": os.pathsep.join(paths), "FLYBALL_DASHBOARD_TOKEN": token},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith(("http://127.0.0.1:", "https://127.0.0.1:")), log.read_text()
            yield url
        finally:
            process.terminate()
            try:
                code = process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            finally:
                if process.stdout is not None:
                    process.stdout.close()
    assert code == 0, log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()
    assert list(folder.iterdir()) == []


_stop = threading.Event()


def _end(_number: int, _frame: FrameType | None) -> None:
    _stop.set()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    config = Config(
        kafka=KafkaConfig(bootstrap=sys.argv[1]), dashboard=DashboardConfig(port=0, certificate=sys.argv[2])
    )
    run_dashboard(config, stop=_stop, ready=lambda url: print(url, flush=True))
