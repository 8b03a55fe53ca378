"""A metrics store of others takes the page that the agent shows, and has the same values."""

import json
import time
import urllib.parse
import urllib.request
from typing import Any

import pytest
from tests.collectors.export.test_prometheus import Scene, framed, inventory

from flyball_contracts.metrics import GPU
from flyball_contracts.records import Allocation

pytestmark = pytest.mark.integration
POD = Allocation(workload="w", replica="r", devices=(1,), runtime="kubernetes", labels={"namespace": "ml", "pod": "p"})
NODE = inventory(allocations=(POD,))
GPUS: dict[str, float | list[float]] = {"hw.power": [300, 200], "hw.energy": [30, 20], "hw.gpu.memory.usage": 1024.0}


def answers(url: str, name: str) -> list[dict[str, Any]]:
    """Series of that name and their value now; waits until there are some."""
    query = urllib.parse.urlencode({"query": f'{{__name__="{name}"}}', "nocache": "1"})
    deadline = time.monotonic() + 30
    while True:
        with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        if found:
            return found
        assert time.monotonic() < deadline, f"{name} did not arrive"
        time.sleep(0.2)


def test_the_page_is_taken_as_it_is(victoria: str) -> None:
    scene = Scene(dcgm=True)
    for _ in range(3):
        scene.tick(framed(GPU, GPUS), of=NODE)
    text = scene.get().read()
    scene.exports.close()
    with urllib.request.urlopen(f"{victoria}/api/v1/import/prometheus", data=text, timeout=10) as answer:
        assert answer.status == 204
    energy = {one["metric"]["hw_id"]: one for one in answers(victoria, "hw_energy_joules_total")}
    assert {id: float(one["value"][1]) for id, one in energy.items()} == {"GPU-0": 90, "GPU-1": 60}
    assert energy["GPU-1"]["metric"]["pod"] == "p"
    dcgm = {one["metric"]["UUID"]: float(one["value"][1]) for one in answers(victoria, "DCGM_FI_DEV_POWER_USAGE")}
    assert dcgm == {"GPU-0": 300, "GPU-1": 200}
