"""A gateway's metrics of the requests for a workload, whether or not the workload has a replica."""

from flyball_contracts.metrics.base import Layout, gauge

GATEWAY = Layout(
    8,
    "gateway",
    "gateway",
    (
        gauge(
            "flyball.gateway.request.rate",
            "{request}/s",
            "requests that arrived, those refused for want of a replica too",
        ),
        gauge("flyball.gateway.request.queued", "{request}", "requests held back at the gateway"),
        gauge("flyball.gateway.request.active", "{request}", "requests at the gateway that have no answer yet"),
    ),
)
