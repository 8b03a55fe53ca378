"""What autoscalers are told, without a cluster: numbers that have had their time, and streams that are too many."""

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, cast

import pytest

from flyball_actuators.platforms.autoscaler.desired import SLACK_NS, Desired, DesiredReplicas
from flyball_actuators.platforms.autoscaler.keda import MOST_STREAMS, SERVICE, keda_serving, make_messages
from flyball_actuators.platforms.kubernetes.targets import Target, Targets
from flyball_contracts.config import ScalerConfig

CHAT = Target("Deployment", "ml", "chat")
DEADLINE_S = 60.0
GRPC: Any = import_module("grpc")


class Objects:
    """A Deployment with two replicas."""

    def read(self, target: Target) -> dict[str, Any]:
        return {"metadata": {"generation": 1}, "spec": {"replicas": 2}, "status": {"replicas": 2}}


@pytest.fixture
def desired() -> DesiredReplicas:
    return DesiredReplicas(cast(Targets, Objects()), ("ml",))


def test_a_number_ends_with_its_time_even_if_nobody_clears_it(desired: DesiredReplicas) -> None:
    now_ns = time.time_ns()
    desired.set(CHAT, Desired("lost", 5, now_ns - 2 * SLACK_NS))
    assert desired.replicas_for(CHAT) == 2
    desired.set(CHAT, Desired("polled", 6, now_ns - SLACK_NS // 60))
    assert desired.replicas_for(CHAT) == 6, "the poll that ends it is on its way"
    desired.set(CHAT, Desired("next", 7, now_ns + 10 * SLACK_NS))
    assert desired.replicas_for(CHAT) == 7
    desired.clear(CHAT, "next")
    assert desired.replicas_for(CHAT) == 2


class Keda:
    """A client of KEDA's contract."""

    def __init__(self, channel: Any) -> None:
        self._messages = make_messages()
        written: dict[str, Any] = {"request_serializer": self._messages["ScaledObjectRef"].SerializeToString}
        written["response_deserializer"] = self._messages["IsActiveResponse"].FromString
        self._ask = channel.unary_unary(f"/{SERVICE}/IsActive", **written)
        self._stream = channel.unary_stream(f"/{SERVICE}/StreamIsActive", **written)
        self._chat = self._messages["ScaledObjectRef"](name="chat", namespace="ml", scalerMetadata={"target": "chat"})

    def is_active(self) -> bool:
        return bool(self._ask(self._chat, timeout=DEADLINE_S).result)

    def stream(self) -> Any:
        """A stream whose first answer has come; raises ``grpc.RpcError`` if it is refused."""
        stream = self._stream(self._chat, timeout=DEADLINE_S)
        assert next(stream).result
        return stream


@pytest.fixture
def keda(desired: DesiredReplicas) -> Iterator[Keda]:
    with (
        keda_serving(desired, ScalerConfig(keda="127.0.0.1:0"), "platform") as address,
        GRPC.insecure_channel(address) as channel,
    ):
        yield Keda(channel)


def test_streams_leave_threads_for_questions(keda: Keda) -> None:
    streams = [keda.stream() for _ in range(MOST_STREAMS)]
    for _ in range(MOST_STREAMS):
        with pytest.raises(GRPC.RpcError, match="8 streams are open, as many as may be; use triggers of type external"):
            keda.stream()
    assert keda.is_active()
    streams.pop().cancel()
    until = time.monotonic() + DEADLINE_S
    while True:  # the server hears of it a moment later
        try:
            streams.append(keda.stream())
            break
        except GRPC.RpcError:
            assert time.monotonic() < until, "the place of a stream that has ended is not given to another"
            time.sleep(0.05)
    for stream in streams:
        stream.cancel()
