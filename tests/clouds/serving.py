"""From a decision on the topic to machines in a cloud: broker, guard, ledger and driver together."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.actuators.loop import (
    PARTITIONS,
    config_for,
    ended,
    of,
    publish,
    read_all,
    running,
    statuses_of,
    wait_for,
    without_effect,
)
from tests.actuators.rows import observed_row
from tests.actuators.samples import CELL, NOW, S, scale
from tests.brokers.embedded import EmbeddedBroker
from tests.clouds.buying import buy

from flyball_contracts.codec import decode_message
from flyball_contracts.config import PlatformConfig, PoolConfig
from flyball_contracts.records import Pool
from flyball_contracts.topics import POOLS


class Cloud(Protocol):
    """What is judged."""

    def size(self, pool: PoolConfig) -> int: ...

    def interrupt(self, pool: PoolConfig) -> str: ...


def carried_out_by_the_service(
    broker: Callable[..., EmbeddedBroker], folder: Path, entry: PlatformConfig, pool: PoolConfig, cloud: Cloud
) -> None:
    """A plan, out, an interruption, out again, a purchase beyond the budget, and in; each is delivered twice."""
    bootstrap = broker(PARTITIONS).bootstrap
    config = config_for(
        bootstrap, "buyers", mode="live", ledger=str(folder / "ledger"), platforms=(entry,), allow=("pool:*",),
        kill_switch=str(folder / "stop"),
    )  # fmt: skip
    done = 0

    def told(before: int, after: int, id_: str) -> None:
        nonlocal done
        done += 1
        decision = buy(pool, before, after, id_, time_ns=NOW + done * S)
        publish(bootstrap, decision, decision)
        wait_for(ended(bootstrap, done), f"the last word on {id_}")

    with running(without_effect(config), clock=lambda: NOW + 60 * S):
        told(0, 2, "plan")
        assert cloud.size(pool) == 0
    with running(config, clock=lambda: NOW + 60 * S):
        told(0, 2, "out")
        assert cloud.size(pool) == 2
        cloud.interrupt(pool)
        told(min(cloud.size(pool), 2), 2, "again")
        assert cloud.size(pool) == 2
        told(2, 4, "dear")
        assert cloud.size(pool) == 2
        told(2, 9, "much")
        told(2, 1, "in")
        assert cloud.size(pool) == 1
        publish(bootstrap, scale("work", time_ns=NOW + 9 * S))  # a workload of that cell: no cloud carries it out
        wait_for(ended(bootstrap, done + 1), "the last word on work")
    for decision in ("out", "again", "in"):
        assert statuses_of(bootstrap, decision)[:3] == ["accepted", "running", "done"]
    again = of(bootstrap, "again", "done", 2).observed
    assert again is not None
    assert again.ready == 2
    assert {status.split()[0] for status in statuses_of(bootstrap, "dear")} == {"refused"}
    refused = of(bootstrap, "dear", "refused", 2)
    assert (refused.code, "budget_usd_per_hour of 100" in refused.detail) == ("limit", True)
    assert of(bootstrap, "much", "refused", 2).code == "invalid"
    out = of(bootstrap, "out", "done", 2)
    assert (out.driver, out.effect and out.effect.cost_usd_per_hour) == (entry.driver, 2 * pool.price_usd_per_hour)
    assert statuses_of(bootstrap, "work")[0].startswith("refused")
    row = observed_row(bootstrap, entry.driver)
    assert (row.verbs, row.planned) == ({"Scale": (3, 3)}, 1)
    (value, headers), *_ = read_all(bootstrap, POOLS.name)
    declared = decode_message(POOLS.name, value, headers)
    assert isinstance(declared, Pool)
    assert (declared.pool, declared.cell, declared.platform, declared.max_machines) == (
        pool.name,
        CELL,
        entry.driver,
        8,
    )
