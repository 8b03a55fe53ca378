"""What measuring the host costs: the agent without GPUs, beside prometheus-node-exporter."""

import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.brokers.embedded import EmbeddedBroker

from flyball_contracts.errors import TransportError

EXPORTER = "prometheus-node-exporter"
ADDRESS = "127.0.0.1:19100"
SAME = ("cpu", "meminfo", "vmstat", "stat", "pressure", "diskstats", "netdev", "infiniband", "rapl", "timex", "uname")
"""Its collectors that read what the agent reads."""
SECONDS, QUICK_S = 60, 5
READY_S, SETTLE_S = 30, 1


class HostCost(NamedTuple):
    """CPU time of a process at one tick, or scrape, a second: share of one core; and its resident memory in MiB."""

    name: str
    share: float
    rss_mib: float


def compare(*, seconds: int) -> dict[str, Any]:
    """Measure the agent and its peer one after the other, and print them; figures with their units."""
    costs = [agent(seconds)]
    if shutil.which(EXPORTER):
        costs.append(exporter("default collectors", [], seconds))
        same = ["--collector.disable-defaults", *(f"--collector.{name}" for name in SAME)]
        costs.append(exporter("what the agent reads", same, seconds))
    else:
        print(f"{EXPORTER} is not installed: no peer (apt-get install {EXPORTER})")
    for cost in costs:
        ratio = f", {cost.share / costs[0].share:.1f} times the agent" if cost is not costs[0] else ""
        print(f"host, {cost.name}: {100 * cost.share:.2f} % of a core at 1 Hz, RSS {cost.rss_mib:.1f} MiB{ratio}")
    return {"seconds": seconds, "rows": [cost._asdict() for cost in costs], "units": {"share": "of one core"}}


def agent(seconds: int) -> HostCost:
    """Run `flyball agent` without GPUs; what it reads goes to an embedded broker in this process."""
    with tempfile.TemporaryDirectory(prefix="flyball-bench-") as name, EmbeddedBroker({}) as broker:
        file = Path(name) / "flyball.yaml"
        file.write_text(f"agent: {{disabled: [nvml, kmsg], state_dir: {name}, spool_bytes: 0}}\n")
        health = Path(name) / "health"  # touched once it ticks
        command = [sys.executable, "-m", "flyball_cli", "agent", "--config", str(file), "--bootstrap", broker.bootstrap]
        with running([*command, "--health-file", str(health)]) as process:
            return _measured("flyball agent", process, seconds, health.exists, lambda: None)


def exporter(name: str, options: list[str], seconds: int) -> HostCost:
    """Run the exporter and scrape it once a second."""
    command = [EXPORTER, f"--web.listen-address={ADDRESS}", "--log.level=error", *options]

    def scrape() -> None:
        with urllib.request.urlopen(f"http://{ADDRESS}/metrics", timeout=5.0) as page:
            page.read()

    def answers() -> bool:
        try:
            scrape()
        except OSError:
            return False
        return True

    with running(command) as process:
        return _measured(f"{EXPORTER}, {name}", process, seconds, answers, scrape)


@contextmanager
def running(command: list[str]) -> Generator[subprocess.Popen[bytes]]:
    """Run a process of ours for as long as the block lasts."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20.0)


def _measured(
    name: str,
    process: subprocess.Popen[bytes],
    seconds: int,
    ready: Callable[[], bool],
    each_second: Callable[[], None],
) -> HostCost:
    give_up = time.monotonic() + READY_S
    while not ready():
        if time.monotonic() > give_up or process.poll() is not None:
            raise TransportError(f"{name} did not begin within {READY_S} s")
        time.sleep(0.1)
    time.sleep(SETTLE_S)
    each_second()
    before, began = _cpu_s(process), time.monotonic()
    for second in range(1, seconds + 1):
        time.sleep(max(0.0, began + second - time.monotonic()))
        each_second()
    if process.poll() is not None:
        raise TransportError(f"{name} ended with status {process.returncode} while it was measured")
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return HostCost(name, (_cpu_s(process) - before) / seconds, pages * 4096 / 2**20)


def _cpu_s(process: subprocess.Popen[bytes]) -> float:
    return time.clock_gettime((~process.pid << 3) | 2)  # the kernel's clock of another process
