"""Why a pod must stay where it is."""

from typing import Any

import msgspec
import pytest
from tests.actuators.samples import NOW, S, spec

from flyball_actuators.platforms.karpenter.stay import reason_to_stay
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
