"""PCIe bytes in 32 bits: as many as went, however often the counter turned over, or none."""

from math import isnan

import pytest
from tests.collectors.nvml.nvml_tools import both, open_now
from tests.nvml_stub.stub import NARROW, NvmlStub

from flyball_collectors.nvml.readings.current import Wraps

TURN = 1 << 32
SENT = "hw.gpu.io{direction=transmit}"


def test_a_counter_that_turns_over_many_times_between_two_reads() -> None:
    wraps, sent = Wraps(lambda: 63e9), 4_000_000_000
    assert wraps.total(sent % TURN, 0.0, None) == 0
    for second in range(1, 60):
        sent += 50_000_000_000 + second
        rate = (50_000_000_000 + second) * (1 + 0.03 * (-1) ** second)  # of another clock, a little off
        assert wraps.total(sent % TURN, float(second), rate) == sent - 4_000_000_000


def test_without_a_rate_only_a_link_that_is_slow_enough_is_believed() -> None:
    slow, fast, unknown = Wraps(lambda: 3e9), Wraps(lambda: 63e9), Wraps(lambda: None)
    for wraps in (slow, fast, unknown):
        wraps.total(TURN - 100, 0.0, None)
    assert slow.total(50, 1.0, None) == 150
    assert isnan(fast.total(50, 1.0, None))
    assert fast.total(60, 1.01, None) == 10  # a moment later there is no doubt
    assert isnan(unknown.total(50, 0.001, None))


def test_a_driver_that_counts_in_32_bits(nvml_stub: NvmlStub) -> None:
    nvml_stub.gpu().pcie[:] = (1, 1, 4, 4)  # 1 GB/s
    nvml_stub.set_field(197, TURN - 100, kind=NARROW)
    collector = open_now()
    both(collector)
    nvml_stub.set_field(197, 50, kind=NARROW)
    assert both(collector)[0][0][SENT] == pytest.approx(150)
    nvml_stub.set_field(197, 80, kind=NARROW)
    assert both(collector)[0][0][SENT] == pytest.approx(30)
    collector.close()
