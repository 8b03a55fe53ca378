"""Metric layouts: which column of a frame's block is which metric.

A layout is identified by the ``schema`` number in a frame. Names follow the OpenTelemetry semantic
conventions; what those lack is under ``nvidia.gpu.*`` or ``flyball.*``. Units are UCUM as in
OpenTelemetry. A *counter* column carries the increase since the node's previous frame of the layout
(delta temporality): float32 holds a delta exactly where it could not hold a counter since boot.
Columns are only ever appended under a new schema number, never moved.
"""

from collections.abc import Mapping

from flyball_contracts.errors import UnknownSchema
from flyball_contracts.metrics.base import Layout as Layout, Metric as Metric
from flyball_contracts.metrics.gateway import GATEWAY as GATEWAY
from flyball_contracts.metrics.gpu import GPU as GPU
from flyball_contracts.metrics.gpu_detail import GPU_DETAIL as GPU_DETAIL
from flyball_contracts.metrics.gpu_share import GPU_SHARE as GPU_SHARE
from flyball_contracts.metrics.host import HOST as HOST
from flyball_contracts.metrics.numa import NUMA as NUMA
from flyball_contracts.metrics.serving import SERVING as SERVING
from flyball_contracts.metrics.usage import USAGE as USAGE
from flyball_contracts.metrics.workload import WORKLOAD as WORKLOAD

LAYOUTS: Mapping[int, Layout] = {
    layout.schema: layout for layout in (GPU, HOST, WORKLOAD, GPU_DETAIL, NUMA, USAGE, GPU_SHARE, GATEWAY, SERVING)
}


def layout_of(schema: int) -> Layout:
    """Layout of a schema number.

    Raises :class:`UnknownSchema` with the numbers that are known.
    """
    layout = LAYOUTS.get(schema)
    if layout is None:
        known = ", ".join(f"{s} ({x.name})" for s, x in sorted(LAYOUTS.items()))
        raise UnknownSchema(f"frame schema {schema} is not known here (known: {known}); upgrade the reader")
    return layout
