"""Envoy and gateways based on it (Istio, Contour, Envoy Gateway): the admin page, one cluster for each workload.

A request without a host ends at once: only ``upstream_cx_none_healthy`` counts it, not ``upstream_rq``. Retries count
as requests. ``?usedonly&filter=`` makes the page small.
"""

from flyball_collectors.gateway.kinds.base import Kind
from flyball_contracts.config import Series

ENVOY = Kind(
    Series(
        arrived=("envoy_cluster_upstream_rq_total + envoy_cluster_upstream_cx_none_healthy",),
        queued=("envoy_cluster_upstream_rq_pending_active",),
        active=("envoy_cluster_upstream_rq_active",),
    ),
    "envoy_cluster_name",
    "/stats/prometheus",
)
