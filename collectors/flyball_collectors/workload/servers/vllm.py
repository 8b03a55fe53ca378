"""vLLM, engines V0 and V1: a series for each engine, labelled ``engine`` and ``model_name`` since V1.

It counts requests when they end, including aborted ones (``finished_reason="abort"``: the client disconnected). V0 had
``num_requests_swapped`` beside the waiting ones; the reason ``error`` exists since V1 only. A sleeping engine is
healthy, and cannot serve. The time between tokens and the cache were named otherwise before 0.10.
"""

from flyball_collectors.parameters import KnownSeries

VLLM = KnownSeries(
    ended=("vllm:request_success_total",),
    failed=('vllm:request_success_total{finished_reason="error"}',),
    active=("vllm:num_requests_running",),
    queued=("vllm:num_requests_waiting + vllm:num_requests_swapped",),
    tokens_in=("vllm:prompt_tokens_total",),
    tokens_out=("vllm:generation_tokens_total",),
    latency=("vllm:e2e_request_latency_seconds",),
    first_token=("vllm:time_to_first_token_seconds",),
    output_token=("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    kv_cache=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ready=('vllm:engine_sleep_state{sleep_state="awake"}',),
    model="model_name",
)
