"""Metrics that each replica reports about its work."""

from flyball_contracts.metrics.base import Layout, count, gauge

WORKLOAD = Layout(
    3,
    "workload",
    "allocation",
    (
        gauge("flyball.workload.request.rate", "{request}/s", "requests that arrived"),
        gauge("flyball.workload.work.rate", "{work}/s", "work that arrived, in the unit of capacity"),
        gauge("flyball.workload.request.active", "{request}", "requests in service"),
        gauge("flyball.workload.request.queued", "{request}", "requests waiting"),
        gauge("flyball.workload.token.rate", "{token}/s", "prompt tokens", kind="input"),
        gauge("flyball.workload.token.rate", "{token}/s", "generated tokens", kind="output"),
        gauge("flyball.workload.latency", "s", "mean latency of the requests that ended", stat="mean"),
        gauge("flyball.workload.latency", "s", "99th percentile of the same", stat="p99"),
        count("flyball.workload.errors", "{request}", "requests that failed"),
        gauge("flyball.workload.step.time", "s", "time of a training step"),
        gauge("flyball.workload.progress", "1", "share of the job that is done"),
        gauge("flyball.workload.ready", "1", "1 while the replica can serve"),
        count("flyball.workload.steps", "{step}", "training steps done"),
        gauge("flyball.workload.loss", "1", "loss of the last training step that told it"),
    ),
)
