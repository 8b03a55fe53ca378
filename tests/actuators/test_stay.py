"""Why a pod must stay where it is."""

from threading import Event
from typing import Any, cast

import msgspec
import pytest
from tests.actuators.samples import NOW, S, spec

from flyball_actuators.platforms.karpenter.disruption import DO_NOT_DISRUPT, KEPT, DisruptionBlocker
from flyball_actuators.platforms.karpenter.stay import reason_to_stay
from flyball_actuators.platforms.kubernetes.api import Answer, Api
from flyball_actuators.world import WorldTables
from flyball_contracts.cloudevents import rfc3339
from flyball_contracts.records import WorkloadSpec

TRAINING = msgspec.structs.replace(spec(), kind="training")
REQUESTED = {"flyball.dev/checkpoint": "on-request", "flyball.dev/checkpoint-requested": "d1"}


def pod(notes: dict[str, str] | None = None, started_s: int = 0) -> Any:
    return {"metadata": {"annotations": notes or {}}, "status": {"startTime": rfc3339(NOW - started_s * S)}}


def due(in_s: int) -> WorkloadSpec:
    return msgspec.structs.replace(TRAINING, deadline_ns=NOW + in_s * S, duration_s=3_000.0, cold_start_s=60.0)


@pytest.mark.parametrize(
    ("declared", "one", "why"),
    [
        (TRAINING, pod(), ""),
        (msgspec.structs.replace(TRAINING, interruptible=False), pod(), "it cannot be interrupted"),
        (msgspec.structs.replace(TRAINING, interruptible=False, removed=True), pod(), ""),
        (msgspec.structs.replace(spec(), interruptible=False), pod(), ""),  # a service has others to serve
        (TRAINING, pod({"flyball.dev/checkpoint": "on-request"}), "its checkpoint is not confirmed"),
        (TRAINING, pod(REQUESTED | {"flyball.dev/checkpoint-done": "d0"}), "its checkpoint is not confirmed"),
        (TRAINING, pod(REQUESTED | {"flyball.dev/checkpoint-done": "d1"}), ""),
        (due(3_600), pod(started_s=60), ""),
        (due(3_600), pod(started_s=1_000), ""),
        (due(2_500), pod(started_s=1_000), "restarted, it would miss its deadline"),
        (due(1_000), pod(started_s=1_000), ""),  # it is late as it is
    ],
)  # fmt: skip
def test_a_pod_stays_while_it_would_lose_what_it_has_done(declared: Any, one: Any, why: str) -> None:
    assert reason_to_stay(one, declared, NOW) == why


class Pods:
    """An API server with one pod of workload ``train``, which Flyball keeps on its machine."""

    def __init__(self) -> None:
        self.notes: dict[str, str | None] = {KEPT: "it cannot be interrupted", DO_NOT_DISRUPT: "true"}
        self.patched = Event()

    def listed(self, path: str, query: Any) -> Answer:
        notes = {"flyball.dev/workload": "train", **self.notes}
        return Answer(200, [{"metadata": {"name": "p", "namespace": "ml", "uid": "u", "annotations": notes}}], "")

    def call(self, method: str, path: str, body: Any, query: Any, kind: str) -> Answer:
        self.notes |= body["metadata"]["annotations"]
        self.patched.set()
        return Answer(200, {}, "")


def test_a_pod_may_go_once_its_workload_is_removed() -> None:
    pods, tables = Pods(), WorldTables()
    kept = msgspec.structs.replace(spec("train"), kind="training", interruptible=False)
    tables.take(kept)
    keeper = DisruptionBlocker(cast(Api, pods), ("ml",), tables.declared, 0.001)
    try:
        assert not pods.patched.wait(0.2)
        tables.take(msgspec.structs.replace(kept, removed=True))
        assert pods.patched.wait(30)
        assert pods.notes == {KEPT: None, DO_NOT_DISRUPT: None}
    finally:
        keeper.close()
