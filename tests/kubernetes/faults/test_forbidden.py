"""An API server that has just started forbids everything for a moment: no operation ends for that."""

import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.actuators.samples import scale

from flyball_actuators.platforms import Failed, Handle, PlatformError
from flyball_actuators.platforms.autoscaler import AutoscalerPlatform, platform as autoscaler
from flyball_actuators.platforms.kubernetes.api import Answer
from flyball_actuators.platforms.kubernetes.operation import Operation
from flyball_actuators.platforms.kueue import KueuePlatform, platform as kueue
from flyball_actuators.platforms.kueue.operation import Queued
from flyball_contracts.config import PlatformConfig, ScalerConfig
from flyball_contracts.records import SubjectState

UNTIL_NS = time.time_ns() + 3_600 * 10**9


class Server:
    """An API server that answers everything with one status."""

    host = ""
    status = 403

    def __init__(self, *_: Any) -> None: ...

    def get(self, path: str) -> Answer:
        return Answer(self.status, {"message": "not now"}, "")

    def listed(self, path: str, *_: Any) -> Answer:
        return self.get(path)


class Admission:
    """An admission check controller that does nothing."""

    def __init__(self, *_: Any) -> None: ...

    def claim(self, *_: Any) -> None: ...

    def release(self, *_: Any) -> None: ...


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> KueuePlatform:
    monkeypatch.setattr(kueue, "Api", Server)
    monkeypatch.setattr(kueue, "AdmissionCheckController", Admission)
    return KueuePlatform(PlatformConfig(driver="kueue", namespaces=("ml",)))


@pytest.fixture
def autoscaled(monkeypatch: pytest.MonkeyPatch) -> AutoscalerPlatform:
    monkeypatch.setattr(autoscaler, "Api", Server)
    monkeypatch.setattr(autoscaler, "keda_serving", cast(Any, Serving))
    scaler = ScalerConfig(keda="127.0.0.1:0")
    return AutoscalerPlatform(PlatformConfig(driver="autoscaler", namespaces=("ml",), scaler=scaler))


class Serving:
    """A server for KEDA that does nothing."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> str:
        return ""

    def __exit__(self, *_: object) -> None: ...


def handle(kind: Callable[..., Operation], controller: str) -> Handle:
    made = kind(
        verb="count", decision="d", kind=controller, namespace="ml", name="w", uid="u", replicas=4, until_ns=UNTIL_NS
    )
    return Handle(operation=made.encode(), expected=SubjectState())


def test_a_start_in_a_queue_goes_on(queued: KueuePlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlatformError, match="forbidden: not now"):
        queued.poll(handle(Queued, "Job"))
    with pytest.raises(PlatformError, match="forbidden: not now"):
        queued.find(scale(), None)
    monkeypatch.setattr(Server, "status", 404)
    assert queued.poll(handle(Queued, "Job")) == Failed("Job ml/w was deleted")


def test_a_number_for_an_autoscaler_goes_on(autoscaled: AutoscalerPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PlatformError, match="forbidden: not now"):
        autoscaled.poll(handle(Operation, "Deployment"))
    monkeypatch.setattr(Server, "status", 404)
    assert autoscaled.poll(handle(Operation, "Deployment")) == Failed("Deployment ml/w was deleted")
