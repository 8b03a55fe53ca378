"""When the inventory is sent, and with which epoch."""

from flyball_collectors.agent.identity import Identity
from flyball_collectors.agent.inventory import InventoryKeeper
from flyball_collectors.base import Parts
from flyball_collectors.parameters import AgentParameters
from flyball_contracts.records import Device

S = 1_000_000_000
GPU = Device(id="GPU-1", model="H100", memory_bytes=80 << 30)


def keeper() -> InventoryKeeper:
    config = AgentParameters(cell="c", zone="DE", price_usd_per_hour=2.5, inventory_period_s=30)
    return InventoryKeeper(config, Identity("n1", "b1", 7))


def test_it_reports_where_the_node_is_and_what_is_in_it() -> None:
    parts = [Parts(devices=(GPU,), driver_version="580"), Parts(cpu_count=64, memory_bytes=1 << 40)]
    inventory = keeper().due(parts, 100 * S)
    assert inventory is not None
    assert (inventory.node, inventory.boot_id, inventory.cell, inventory.zone) == ("n1", "b1", "c", "DE")
    assert (inventory.devices, inventory.driver_version) == ((GPU,), "580")
    assert (inventory.cpu_count, inventory.memory_bytes, inventory.price_usd_per_hour) == (64, 1 << 40, 2.5)


def test_unchanged_it_is_the_same_record_every_period() -> None:
    one = keeper()
    sent = {time_s: one.due([Parts(devices=(GPU,))], time_s * S) for time_s in range(100, 165)}
    known = {time_s: inventory for time_s, inventory in sent.items() if inventory is not None}
    assert list(known) == [100, 130, 160]
    assert len(set(known.values())) == 1
    assert one.epoch == 100 * S


def test_a_change_is_sent_at_once_with_the_next_epoch() -> None:
    one = keeper()
    first = one.due([Parts(devices=(GPU,))], 100 * S)
    changed = one.due([Parts(devices=(GPU, GPU))], 101 * S)
    assert first is not None
    assert changed is not None
    assert changed.epoch == first.epoch + 1 == one.epoch
    assert changed.time_ns == 101 * S


def test_a_clock_that_is_set_back_does_not_silence_it() -> None:
    one = keeper()
    one.due([Parts()], 10_000 * S)
    assert one.due([Parts()], 100 * S) is not None
