"""InfiniBand ports, the clock's offset and pressure of interrupts."""

from pathlib import Path

import numpy as np
import pytest

from flyball_collectors.host import HostCollector
from flyball_collectors.host.clock import Timex, offset_of, read_clock
from flyball_contracts.metrics import HOST

S = 1_000_000_000
IN, OUT = "system.network.io{direction=receive}", "system.network.io{direction=transmit}"
ERRORS = "system.network.errors{direction=receive}"


def write_port(root: Path, device: str, port: int, **counts: int) -> None:
    folder = root / f"sys/class/infiniband/{device}/ports/{port}/counters"
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in counts.items():
        (folder / name).write_text(f"{count}\n")


def write_interfaces(root: Path, received: int, **types: int) -> None:
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    lines = [f"{name}: {received} 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0\n" for name in types]
    (root / "proc/net/dev").write_text("".join(lines))
    for name, kind in types.items():
        (root / "sys/class/net" / name).mkdir(parents=True, exist_ok=True)
        (root / "sys/class/net" / name / "type").write_text(f"{kind}\n")


def row(collector: HostCollector) -> dict[str, float]:
    (reading,) = collector.read(S, S)
    return {key: float(reading.values[0, i]) for key, i in HOST.columns.items() if not np.isnan(reading.values[0, i])}


def test_ports_count_words_and_what_runs_over_them_counts_once(tmp_path: Path) -> None:
    collector = HostCollector(tmp_path)
    for step in (0, 1):
        write_interfaces(tmp_path, 1000 * step, eth0=1, ib0=32)
        for device in ("mlx5_0", "mlx5_1"):
            counts = {"port_rcv_data": 250, "port_xmit_data": 50, "port_rcv_errors": 2, "link_downed": 1}
            write_port(tmp_path, device, 1, **{name: step * count for name, count in counts.items()})
        values = row(collector)
    assert values[IN] == 1000 + 2 * 250 * 4
    assert values[OUT] == 2 * 50 * 4
    assert values[ERRORS] == 2 * 3


def test_an_interface_that_comes_with_its_counts_adds_none_of_them(tmp_path: Path) -> None:
    write_interfaces(tmp_path, 5_000_000_000, eth0=1)
    collector = HostCollector(tmp_path)
    row(collector)
    write_interfaces(tmp_path, 5_000_000_100, eth0=1, eth1=1)  # back from a container
    assert row(collector)[IN] == 100
    write_interfaces(tmp_path, 5_000_000_300, eth0=1, rail1=1)  # another name
    assert row(collector)[IN] == 200
    write_interfaces(tmp_path, 5_000_000_600, eth0=1, rail1=1)
    assert row(collector)[IN] == 600


def test_a_port_that_could_not_be_read_once_adds_nothing_it_had_counted(tmp_path: Path) -> None:
    write_interfaces(tmp_path, 0, lo=772)
    write_port(tmp_path, "mlx5_0", 1, port_rcv_data=1_000_000_000)
    write_port(tmp_path, "mlx5_1", 1, port_rcv_data=0)
    collector = HostCollector(tmp_path)
    row(collector)
    counter = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data"
    counter.write_text("")
    assert row(collector)[IN] == 0
    counter.write_text("1000000100")
    assert row(collector)[IN] == 0
    counter.write_text("1000000110")
    assert row(collector)[IN] == 40


def test_a_port_without_counters_is_no_fault(tmp_path: Path) -> None:
    write_interfaces(tmp_path, 5, eth0=1)
    (tmp_path / "sys/class/infiniband/mlx5_0/ports/1").mkdir(parents=True)
    collector = HostCollector(tmp_path)
    row(collector)
    assert row(collector)[IN] == 0


@pytest.mark.parametrize(
    ("offset", "status", "state", "seconds"),
    [
        (2_000_000, 0x2001, 0, -0.002),
        (2000, 0x0001, 0, -0.002),
        (5, 0x0040, 5, None),
        (5, 1, 5, None),
        (5, 1, -1, None),
    ],
)
def test_offsets(offset: int, status: int, state: int, seconds: float | None) -> None:
    timex = Timex(offset=offset, status=status)
    assert offset_of(timex, state).get("flyball.agent.clock.offset") == (
        None if seconds is None else pytest.approx(seconds)
    )


def test_the_offset_of_this_machine_is_unknown_or_a_number_of_seconds() -> None:
    value = read_clock(Path("/")).get("flyball.agent.clock.offset", 0.0)
    assert isinstance(value, float)
    assert abs(value) < 1000


def test_pressure_of_interrupts(tmp_path: Path) -> None:
    (tmp_path / "proc/pressure").mkdir(parents=True)
    collector = HostCollector(tmp_path)
    for total in (0, 500_000):
        (tmp_path / "proc/pressure/irq").write_text(f"full avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n")
        values = row(collector)
    assert values["system.linux.psi.total_time{resource=irq,stall=full}"] == 0.5
