"""Meaning of the series of each gateway: one table each."""

from collections.abc import Mapping

from flyball_collectors.gateway.kinds.base import Kind as Kind
from flyball_collectors.gateway.kinds.envoy import ENVOY
from flyball_collectors.gateway.kinds.inference_extension import INFERENCE_EXTENSION
from flyball_collectors.gateway.kinds.keda_http import KEDA_HTTP
from flyball_collectors.gateway.kinds.keda_queue import KEDA_QUEUE
from flyball_contracts.config import GatewayKind, Series

KINDS: Mapping[GatewayKind, Kind] = {
    "envoy": ENVOY,
    "inference_extension": INFERENCE_EXTENSION,
    "keda_http": KEDA_HTTP,
    "keda_queue": KEDA_QUEUE,
    "generic": Kind(Series(), ""),
}
