"""When the inventory is sent, and with which epoch."""

from pathlib import Path

import pytest

from flyball_collectors.agent.identity import Identity
from flyball_collectors.agent.inventory import InventoryKeeper
from flyball_collectors.agent.last_inventory import LastInventory
from flyball_collectors.base import Parts
from flyball_collectors.parameters import AgentParameters
from flyball_contracts.records import Device, Inventory
from flyball_contracts.tables import Tables

S = 1_000_000_000
GPU = Device(id="GPU-1", model="H100", memory_bytes=80 << 30)


def keeper(state: Path) -> InventoryKeeper:
    config = AgentParameters(
        cell="c", zone="DE", price_usd_per_hour=2.5, inventory_period_s=30, state_dir=str(state / "state")
    )
    (state / "state").mkdir(exist_ok=True)
    return InventoryKeeper(config, Identity("n1", "b1", 7), LastInventory(config, "n1"))


def test_it_reports_where_the_node_is_and_what_is_in_it(tmp_path: Path) -> None:
    parts = [Parts(devices=(GPU,), driver_version="580"), Parts(cpu_count=64, memory_bytes=1 << 40)]
    inventory = keeper(tmp_path).due(parts, 100 * S)
    assert inventory is not None
    assert (inventory.node, inventory.boot_id, inventory.cell, inventory.zone) == ("n1", "b1", "c", "DE")
    assert (inventory.devices, inventory.driver_version) == ((GPU,), "580")
    assert (inventory.cpu_count, inventory.memory_bytes, inventory.price_usd_per_hour) == (64, 1 << 40, 2.5)


def test_unchanged_it_is_the_same_record_every_period(tmp_path: Path) -> None:
    one = keeper(tmp_path)
    sent = {time_s: one.due([Parts(devices=(GPU,))], time_s * S) for time_s in range(100, 165)}
    known = {time_s: inventory for time_s, inventory in sent.items() if inventory is not None}
    assert list(known) == [100, 130, 160]
    assert len(set(known.values())) == 1
    assert one.epoch == 100 * S


def test_a_change_is_sent_at_once_with_the_next_epoch(tmp_path: Path) -> None:
    one = keeper(tmp_path)
    first = one.due([Parts(devices=(GPU,))], 100 * S)
    changed = one.due([Parts(devices=(GPU, GPU))], 101 * S)
    assert first is not None
    assert changed is not None
    assert changed.epoch == first.epoch + 1 == one.epoch
    assert changed.time_ns == 101 * S


def test_a_clock_that_is_set_back_does_not_silence_it(tmp_path: Path) -> None:
    one = keeper(tmp_path)
    one.due([Parts()], 10_000 * S)
    assert one.due([Parts()], 100 * S) is not None


def inventories_over_a_restart(state: Path) -> list[Inventory]:
    """What two runs send, the second five hours earlier by its clock."""
    first, late_s, early_s = keeper(state), 8 * 3600, 3 * 3600
    sent = [first.due([Parts()], late_s * S), first.due([Parts(cpu_count=8)], (late_s + 1) * S)]
    sent.append(first.last((late_s + 2) * S))
    second = keeper(state)
    sent += [second.due([Parts()], early_s * S), second.due([Parts(cpu_count=8)], (early_s + 1) * S)]
    return [inventory for inventory in sent if inventory is not None]


def test_a_restart_after_the_clock_was_set_back_is_no_older_inventory(tmp_path: Path) -> None:
    sent, table = inventories_over_a_restart(tmp_path), Tables()
    assert len(sent) == 5
    assert [table.apply(inventory) for inventory in sent] == [True] * 5
    assert table.inventories["n1"].agent == "running"
    epochs = [inventory.epoch for inventory in sent]
    assert epochs == sorted(set(epochs)), "the engine keeps the greater epoch of a boot"


def test_a_change_after_the_clock_was_set_back_replaces_the_inventory(tmp_path: Path) -> None:
    one, table = keeper(tmp_path), Tables()
    first, changed = one.due([Parts()], 10_000 * S), one.due([Parts(cpu_count=8)], 100 * S)
    assert first is not None
    assert changed is not None
    assert [table.apply(first), table.apply(changed)] == [True, True]


@pytest.mark.parametrize("damage", ["", "1", "x 2", "-1 2", "1 2 3", f"{2**63} 1", "9" * 5000])
def test_a_damaged_note_of_the_last_inventory_counts_for_nothing(tmp_path: Path, damage: str) -> None:
    keeper(tmp_path).due([Parts()], 100 * S)
    (tmp_path / "state/inventory-n1").write_text(damage)
    later = keeper(tmp_path)
    later.due([Parts()], 50 * S)
    assert later.epoch == 50 * S


def test_without_a_folder_inventories_of_one_run_go_on(tmp_path: Path) -> None:
    one = keeper(tmp_path)
    (tmp_path / "state").rmdir()
    first, changed = one.due([Parts()], 100 * S), one.due([Parts(cpu_count=8)], 101 * S)
    assert first is not None
    assert changed is not None
    assert changed.epoch == first.epoch + 1
