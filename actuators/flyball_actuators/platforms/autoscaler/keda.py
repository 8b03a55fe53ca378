"""An external scaler for KEDA: a gRPC service that ScaledObjects query for the number of replicas.

The service and its messages are ``externalscaler.ExternalScaler`` of KEDA 2; the optional stream of metric
specifications is not implemented. A trigger of type ``external`` names this address. Its metadata names the object to
scale: ``target``, and ``kind`` unless it is a Deployment.
"""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import Any

from flyball_actuators.platforms.autoscaler.certificate import key_of
from flyball_actuators.platforms.autoscaler.desired import DesiredReplicas
from flyball_actuators.platforms.autoscaler.horizontal import METRIC
from flyball_actuators.platforms.autoscaler.metrics_api import target_of
from flyball_actuators.platforms.base import PlatformError, Rejected
from flyball_contracts.config import ScalerConfig
from flyball_contracts.errors import ConfigError

SERVICE = "externalscaler.ExternalScaler"
MOST_STREAMS = 8
"""Most streams at a time: each holds a thread, and other requests need threads, too."""
_THREADS = 2 * MOST_STREAMS
_STREAM_PERIOD_S = 5.0
_STOP_S = 2.0
_STRING, _INT64, _DOUBLE, _BOOL = "TYPE_STRING", "TYPE_INT64", "TYPE_DOUBLE", "TYPE_BOOL"
_MESSAGES: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
    "ScaledObjectRef": (
        ("name", 1, _STRING, False),
        ("namespace", 2, _STRING, False),
        ("scalerMetadata", 3, "ScaledObjectRef.ScalerMetadataEntry", True),
    ),
    "IsActiveResponse": (("result", 1, _BOOL, False),),
    "GetMetricSpecResponse": (("metricSpecs", 1, "MetricSpec", True),),
    "MetricSpec": (
        ("metricName", 1, _STRING, False),
        ("targetSize", 2, _INT64, False),
        ("targetSizeFloat", 3, _DOUBLE, False),
    ),
    "GetMetricsRequest": (
        ("scaledObjectRef", 1, "ScaledObjectRef", False),
        ("metricName", 2, _STRING, False),
    ),
    "GetMetricsResponse": (("metricValues", 1, "MetricValue", True),),
    "MetricValue": (
        ("metricName", 1, _STRING, False),
        ("metricValue", 2, _INT64, False),
        ("metricValueFloat", 3, _DOUBLE, False),
    ),
}
"""Name, number, type and repeated flag of each field of each message."""


@contextmanager
def keda_serving(wanted: DesiredReplicas, config: ScalerConfig, where: str) -> Generator[str]:
    """Serve KEDA at ``config.keda`` during the block; yields HOST:PORT.

    Raises :class:`ConfigError` for an address or certificate that cannot be used, or without gRPC.
    """
    try:
        grpc: Any = import_module("grpc")
        messages = make_messages()
    except ImportError as error:
        raise ConfigError(f"{where}.scaler.keda: KEDA speaks gRPC; pip install 'flyball[keda]'") from error
    server = grpc.server(ThreadPoolExecutor(_THREADS, "keda"), options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers((_handlers(grpc, messages, _Scaler(grpc, messages, wanted)),))
    host, _, port = config.keda.rpartition(":")
    try:
        if config.certificate:
            parts = [Path(file).read_bytes() for file in (key_of(config), config.certificate)]
            authority = Path(config.client_ca).read_bytes() if config.client_ca else None
            credentials = grpc.ssl_server_credentials(
                [(parts[0], parts[1])], authority, require_client_auth=authority is not None
            )
            bound = server.add_secure_port(f"{host}:{int(port)}", credentials)
        else:
            bound = server.add_insecure_port(f"{host}:{int(port)}")
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{where}.scaler.keda: {config.keda}: {error}; give a free HOST:PORT and PEM files"
        ) from error
    server.start()
    try:
        yield f"{host}:{bound}"
    finally:
        server.stop(_STOP_S).wait()


class _Scaler:
    """Implements the calls; a query that cannot be answered aborts with a gRPC status that KEDA treats as an error."""

    def __init__(self, grpc: Any, messages: dict[str, Any], wanted: DesiredReplicas) -> None:
        self._codes, self._messages, self._wanted = grpc.StatusCode, messages, wanted
        self._streams = BoundedSemaphore(MOST_STREAMS)

    def is_active(self, request: Any, context: Any) -> Any:
        """Whether the desired number of replicas is above zero."""
        return self._messages["IsActiveResponse"](result=self._replicas(request, context) > 0)

    def stream_is_active(self, request: Any, context: Any) -> Any:
        """Send the activity now, and again whenever it changes."""
        if not self._streams.acquire(blocking=False):
            context.abort(
                self._codes.RESOURCE_EXHAUSTED,
                f"{MOST_STREAMS} streams are open, as many as may be; use triggers of type external, which ask, "
                "in place of external-push",
            )
            raise AssertionError  # abort has raised
        if not context.add_callback(self._streams.release):
            self._streams.release()
            return
        last: bool | None = None
        while context.is_active():
            active = self._replicas(request, context) > 0
            if active != last:
                yield self._messages["IsActiveResponse"](result=active)
                last = active
            if _wait(context, _STREAM_PERIOD_S):
                return

    def metric_spec(self, request: Any, context: Any) -> Any:
        """One metric with a target of 1 per replica, so that its value is the number of replicas."""
        self._replicas(request, context)
        spec = self._messages["MetricSpec"](metricName=METRIC, targetSize=1, targetSizeFloat=1.0)
        return self._messages["GetMetricSpecResponse"](metricSpecs=[spec])

    def metrics(self, request: Any, context: Any) -> Any:
        """The desired number of replicas."""
        replicas = self._replicas(request.scaledObjectRef, context)
        value = self._messages["MetricValue"](metricName=METRIC, metricValue=replicas, metricValueFloat=float(replicas))
        return self._messages["GetMetricsResponse"](metricValues=[value])

    def _replicas(self, reference: Any, context: Any) -> int:
        metadata: dict[str, str] = dict(reference.scalerMetadata)
        labels = {"name": metadata.get("target", ""), "kind": metadata.get("kind", "Deployment")}
        target = target_of(reference.namespace, labels)
        if isinstance(target, str):
            context.abort(
                self._codes.INVALID_ARGUMENT,
                f"ScaledObject {reference.namespace}/{reference.name}: metadata needs target: NAME of the object that "
                "is scaled and, unless it is a Deployment, kind: KIND "
                f"({', '.join(sorted(metadata)) or 'none'} is there)",
            )
            raise AssertionError  # abort has raised
        try:
            found = self._wanted.replicas_for(target)
        except PlatformError as error:
            context.abort(self._codes.UNAVAILABLE, str(error))
            raise
        if isinstance(found, Rejected):
            context.abort(self._codes.NOT_FOUND, found.detail)
            raise AssertionError  # abort has raised
        return found


def _wait(context: Any, for_s: float) -> bool:
    """Wait for ``for_s`` seconds; return whether the client has disconnected."""
    gone = Event()
    return not context.add_callback(gone.set) or gone.wait(for_s)


def _handlers(grpc: Any, messages: dict[str, Any], scaler: _Scaler) -> Any:
    def of(act: Any, request_type: str, stream: bool = False) -> Any:
        make = grpc.unary_stream_rpc_method_handler if stream else grpc.unary_unary_rpc_method_handler
        return make(act, request_deserializer=messages[request_type].FromString, response_serializer=_bytes)

    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "IsActive": of(scaler.is_active, "ScaledObjectRef"),
            "StreamIsActive": of(scaler.stream_is_active, "ScaledObjectRef", stream=True),
            "GetMetricSpec": of(scaler.metric_spec, "ScaledObjectRef"),
            "GetMetrics": of(scaler.metrics, "GetMetricsRequest"),
        },
    )


def _bytes(answer: Any) -> Any:
    return answer.SerializeToString()


def make_messages() -> dict[str, Any]:
    """Message classes by name."""
    descriptor: Any = import_module("google.protobuf.descriptor_pb2")
    pool: Any = import_module("google.protobuf.descriptor_pool").DescriptorPool()
    factory: Any = import_module("google.protobuf.message_factory")
    field_type, label = descriptor.FieldDescriptorProto.Type, descriptor.FieldDescriptorProto.Label
    file = descriptor.FileDescriptorProto(name="flyball/externalscaler", package="externalscaler", syntax="proto3")

    def add(message: Any, name: str, number: int, kind: str, repeated: bool) -> None:
        field = message.field.add(name=name, number=number)
        field.label = label.Value("LABEL_REPEATED" if repeated else "LABEL_OPTIONAL")
        if kind.startswith("TYPE_"):
            field.type = field_type.Value(kind)
        else:
            field.type, field.type_name = field_type.Value("TYPE_MESSAGE"), f".externalscaler.{kind}"

    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            add(message, *field)
        if name == "ScaledObjectRef":
            entry = message.nested_type.add(name="ScalerMetadataEntry")
            entry.options.map_entry = True
            add(entry, "key", 1, _STRING, False)
            add(entry, "value", 2, _STRING, False)
    pool.Add(file)
    return {name: factory.GetMessageClass(pool.FindMessageTypeByName(f"externalscaler.{name}")) for name in _MESSAGES}
