"""SGLang, started with ``--enable-metrics``.

Requests are counted when they end; not every version counts requests separately that the client aborted. Ranks of one
engine repeat its gauges; with priorities their sum has an empty label ``priority``.
"""

from flyball_collectors.parameters import KnownSeries

SGLANG = KnownSeries(
    ended=("sglang:num_requests_total", "sglang:e2e_request_latency_seconds_count"),
    active=('sglang:num_running_reqs{priority=""}',),
    queued=('sglang:num_queue_reqs{priority=""}',),
    tokens_in=("sglang:prompt_tokens_total",),
    tokens_out=("sglang:generation_tokens_total",),
    latency=("sglang:e2e_request_latency_seconds",),
    first_token=("sglang:time_to_first_token_seconds",),
    output_token=("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
    kv_cache=('sglang:token_usage{priority=""}',),
    copies=("tp_rank", "pp_rank", "moe_ep_rank"),
    model="model_name",
)
