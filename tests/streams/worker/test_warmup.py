import logging
import subprocess
import sys
from typing import Any, cast

import jax
import pytest
from tests.streams.worker.rig import PARTITIONS, Simulated, incoming

from flyball_contracts.codec import decode_message
from flyball_contracts.config import FleetConfig, GridZone, NodePool, Service, WorkerConfig
from flyball_contracts.records import Device, Inventory, Record, WorkloadSpec
from flyball_streams.engine import Directory, Engine
from flyball_streams.worker import warmup


def compiled(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What has been compiled since the last call."""
    found = [r.getMessage()[:200] for r in caplog.records if r.getMessage().startswith("Compiling ")]
    caplog.clear()
    return found


LARGE = FleetConfig(
    pools=(NodePool(name="gpu", sku="h100", nodes=120, zone="DE"),), zones=(GridZone(name="DE"),),
    services=(Service(name="chat", pools=("gpu",), replicas=8, max_replicas=80),), trainings=(), notebooks=(),
    batches=(), failing=(), straggling=(),
)  # fmt: skip
"""In each partition more devices than the least padded sizes hold: rows grow when their nodes are taken on."""


@pytest.mark.parametrize(("fleet", "expected"), [(None, [(64, 64)]), (LARGE, [(64, 64), (256, 64)])])
def test_nothing_is_compiled_after_the_warm_up(
    fleet: FleetConfig | None, expected: list[tuple[int, int]], caplog: pytest.LogCaptureFixture
) -> None:
    config = WorkerConfig()
    simulated = Simulated(15, fleet)
    directory = Directory()
    for message in simulated.start:
        record = decode_message(message.topic, message.value, message.headers)
        assert isinstance(record, Record)
        directory.apply(record)
    cast(Any, jax).clear_caches()  # whatever other tests left
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        sizes = warmup.warm_up(config, directory, PARTITIONS)
        assert compiled(caplog)
        assert sizes == expected
        engine = Engine(config, PARTITIONS)
        for batch in (simulated.start, *simulated.ticks):
            engine.feed([incoming(m) for m in batch])
        late = compiled(caplog)
        assert not late, "\n".join(late)


def test_each_padded_size_is_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[tuple[int, int]] = []

    def note(_config: WorkerConfig, devices: int, workloads: int) -> None:
        run.append((devices, workloads))

    monkeypatch.setattr(warmup, "_run", note)
    directory = Directory()
    for i in range(2):
        devices = tuple(Device(id=f"{i}/{j}", model="m", memory_bytes=1) for j in range(100 * i + 10))
        directory.apply(Inventory(node=f"n{i}", cell="c", epoch=1, time_ns=0, devices=devices))
    for i in range(300):
        directory.apply(WorkloadSpec(workload=f"w{i}", cell="c", time_ns=0, kind="batch"))
    assert warmup.warm_up(WorkerConfig(), directory, dict.fromkeys(PARTITIONS, 1)) == run == [(64, 64), (128, 384)]


ONLY_WHERE_MACHINES_ARE_CHOSEN = """
import sys
from flyball_contracts.config import WorkerConfig, parse_config
from flyball_streams.engine import Directory
from flyball_streams.worker import run, warmup

warmup._run = lambda *_: None
offers = "choice: {offers: [{name: a, gpu_model: h100, price_usd_per_hour: 2.0}]"
for text in ("", f"{offers}, mode: 'off'}}", f"{offers}, mode: advise}}"):
    warmup.warm_up(parse_config(text, WorkerConfig), Directory(), {"flyball.telemetry.v1": 1, "flyball.demand.v1": 1})
    print("scipy.optimize" in sys.modules)
"""


def test_the_solver_is_loaded_before_the_first_tick_and_only_where_machines_are_chosen() -> None:
    said = subprocess.run(
        [sys.executable, "-c", ONLY_WHERE_MACHINES_ARE_CHOSEN], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["False", "False", "True"]
