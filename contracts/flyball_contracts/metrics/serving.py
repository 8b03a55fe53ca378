"""Metrics of each replica of a language-model server: latencies and cache use.

Names are those of OpenTelemetry's conventions for generative AI, which have none for the cache of keys and values.
"""

from flyball_contracts.metrics.base import Layout, gauge

SERVING = Layout(
    9,
    "serving",
    "allocation",
    (
        gauge("gen_ai.server.time_to_first_token", "s", "mean time from a request to its first token", stat="mean"),
        gauge("gen_ai.server.time_to_first_token", "s", "99th percentile of the same", stat="p99"),
        gauge("gen_ai.server.time_per_output_token", "s", "mean time from one token to the next", stat="mean"),
        gauge("gen_ai.server.time_per_output_token", "s", "99th percentile of the same", stat="p99"),
        gauge("flyball.workload.kv_cache.utilization", "1", "share of the key-value cache that is in use"),
    ),
)
