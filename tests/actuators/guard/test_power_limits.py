"""What inventories tell of power limits."""

from pathlib import Path

import msgspec
import pytest
from tests.actuators.samples import CELL, inventory

from flyball_actuators.world import PowerLimits
from flyball_contracts.records import Inventory


def limited(node: str, *limits_w: float | None, workload: str = "chat") -> Inventory:
    made = inventory(node, workload=workload, replicas=1, devices=len(limits_w))
    devices = (
        msgspec.structs.replace(device, power_limit_w=w) for device, w in zip(made.devices, limits_w, strict=True)
    )
    return msgspec.structs.replace(made, devices=tuple(devices))


def seen(*inventories: Inventory) -> dict[str, float]:
    limits, known = PowerLimits(), dict[str, Inventory]()
    for one in inventories:
        limits.see(one)
        known[one.node] = one
    return dict(limits.by_workload(known).get(CELL, {}))


def test_the_largest_on_the_nodes_of_a_workload_counts() -> None:
    assert seen(limited("a", 300.0, 700.0, None), limited("b", 400.0), limited("c", 900.0, workload="other")) == {
        "chat": 700.0,
        "other": 900.0,
    }


def test_a_limit_that_was_lowered_may_be_raised_again() -> None:
    assert seen(limited("a", 700.0), limited("a", 250.0)) == {"chat": 700.0}


def test_nothing_is_known_where_nobody_tells() -> None:
    assert seen(limited("a", None, float("nan"), 0.0), inventory("b", replicas=1)) == {}


def test_a_node_that_is_gone_counts_no_more() -> None:
    limits, one = PowerLimits(), limited("a", 700.0)
    limits.see(one)
    assert limits.by_workload({"a": one}) == {CELL: {"chat": 700.0}}
    limits.changed()
    assert limits.by_workload({}) == {}


def test_the_largest_is_known_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, high, low = tmp_path / "ledger.power", limited("a", 700.0), limited("a", 250.0)
    for inventory_now in (high, low):
        limits = PowerLimits(path)
        limits.see(inventory_now)
        assert limits.by_workload({"a": inventory_now}) == {CELL: {"chat": 700.0}}
    path.write_bytes(b"{")
    limits = PowerLimits(path)
    assert "they are collected again" in caplog.text
    limits.see(low)
    assert limits.by_workload({"a": low}) == {CELL: {"chat": 250.0}}


def test_one_wrong_inventory_lifts_no_limit(tmp_path: Path) -> None:
    """Nor does it forbid a small limit for good: an agent may be wrong, or not ours any more."""
    path, day_ns = tmp_path / "ledger.power", 86_400_000_000_000

    def at(day: float, limit_w: float) -> Inventory:
        made = limited("a", limit_w)
        return msgspec.structs.replace(made, time_ns=made.time_ns + round(day * day_ns))

    def after(*told: Inventory) -> float:
        limits = PowerLimits(path)
        for inventory_now in told:
            limits.see(inventory_now)
        return limits.by_workload({"a": told[-1]})[CELL]["chat"]

    assert after(at(0, 700.0), at(0.1, 1e6), at(0.2, 1e6)) == 700.0, "no GPU takes as much"
    assert after(at(0.3, 1900.0)) == 700.0
    assert after(at(0.4, 1900.0), at(0.5, 700.0), at(0.6, 1900.0)) == 700.0, "not twice in a row"
    assert after(at(0.7, 1900.0), at(0.8, 1800.0)) == 1800.0, "another GPU may be in its place"
    assert after(at(1, 500.0)) == after(at(7, 500.0)) == 1800.0
    assert after(at(9, 500.0)) == 500.0
    assert after(at(40, 300.0)) == 500.0, "an inventory that stays the same is not sent again: days count from here"
    assert after(at(41, 500.0), at(10_000, 400.0), at(50, 300.0)) == 300.0, "a clock far ahead keeps nothing"
    path.write_text('{"a-0": 700.0}')
    assert after(at(60, 300.0)) == 700.0, "a file of an older version"
    assert after(at(28, 300.0)) == 300.0
