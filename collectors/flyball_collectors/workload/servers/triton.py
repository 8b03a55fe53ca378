"""Triton: a series for each model and version.

An ensemble counts a request once for itself and once for each model in it, so with several models ``match: {model:
ensemble}`` has to name one.
With the TensorRT-LLM and vLLM backends it counts tokens, and with TensorRT-LLM also requests in service. Quantiles need
``--metrics-config summary_latencies=true``, and the time to the first response of a model that streams needs
``--metrics-config histogram_latencies=true``.
"""

from flyball_collectors.parameters import KnownSeries

TRITON = KnownSeries(
    ended=("nv_inference_request_success + nv_inference_request_failure",),
    failed=('nv_inference_request_failure{reason!="CANCELED"}',),
    active=('nv_trt_llm_request_metrics{request_type="scheduled"}',),
    queued=('nv_trt_llm_request_metrics{request_type="waiting"}', "nv_inference_pending_request_count"),
    tokens_in=("nv_llm_input_token_len_sum", "vllm:prompt_tokens_total"),
    tokens_out=("nv_llm_output_token_len_sum", "vllm:generation_tokens_total"),
    latency=("nv_inference_request_summary_us",),
    latency_sum=("nv_inference_request_duration_us",),
    latency_count=("nv_inference_request_success",),
    first_token=("vllm:time_to_first_token_seconds", "nv_inference_first_response_histogram_ms"),
    output_token=("vllm:time_per_output_token_seconds",),
    kv_cache=('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}', "vllm:gpu_cache_usage_perc"),
    model="model",
)
