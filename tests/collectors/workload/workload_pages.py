"""Pages of metrics as the servers write them, made of a few numbers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

VLLM_BOUNDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0)
TOKEN_BOUNDS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
SGLANG_BOUNDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0)
MODEL = "org/Model-8B"


class Work(NamedTuple):
    """What a server has done since it started, and what it does now."""

    latencies_s: Sequence[float] = ()
    failed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    active: int = 0
    queued: int = 0
    gaps_s: Sequence[float] = ()
    cache: float = 0.25


def metric_family(name: str, kind: str, samples: Mapping[str, float], *, exact: bool = False) -> str:
    """One metric; the keys of `samples` are what stands between the braces, or nothing."""
    lines = [
        f"{name}{{{labels}}} {value if exact else repr(float(value))}"
        if labels
        else f"{name} {value if exact else repr(float(value))}"
        for labels, value in samples.items()
    ]
    return "\n".join([f"# HELP {name} Number of it.", f"# TYPE {name} {kind}", *lines, ""])


def histogram(name: str, labels: str, values: Sequence[float], bounds: Sequence[float]) -> str:
    comma = "," if labels else ""
    counts = [(str(bound), sum(value <= bound for value in values)) for bound in bounds]
    lines = [f'{name}_bucket{{{labels}{comma}le="{le}"}} {count}.0' for le, count in [*counts, ("+Inf", len(values))]]
    inside = f"{{{labels}}}" if labels else ""
    lines += [f"{name}_sum{inside} {sum(values)!r}", f"{name}_count{inside} {len(values)}.0"]
    return "\n".join([f"# HELP {name} Histogram of it.", f"# TYPE {name} histogram", *lines, ""])


def vllm(work: Work, *, engine: str = "0", v0: bool = False, model: str = MODEL) -> str:
    """Engine V1; with `v0` the page of version 0.6: no engines, no reason `error`, and swapped requests."""
    labels = f'model_name="{model}"' if v0 else f'engine="{engine}",model_name="{model}"'
    ended = {"stop": len(work.latencies_s), "length": 0, "abort": 0}
    if not v0:
        ended["error"] = work.failed
    reasons = {f'{labels},finished_reason="{reason}"': count for reason, count in ended.items()}
    parts = [
        metric_family("python_gc_objects_collected_total", "counter", {'generation="0"': 12863}),
        metric_family("vllm:num_requests_running", "gauge", {labels: work.active}),
        metric_family("vllm:num_requests_waiting", "gauge", {labels: work.queued}),
        metric_family("vllm:gpu_cache_usage_perc" if v0 else "vllm:kv_cache_usage_perc", "gauge", {labels: work.cache}),
        metric_family("vllm:prompt_tokens_total", "counter", {labels: work.tokens_in}),
        metric_family("vllm:generation_tokens_total", "counter", {labels: work.tokens_out}),
        metric_family("vllm:request_success_total", "counter", reasons),
        histogram("vllm:time_to_first_token_seconds", labels, [s / 4 for s in work.latencies_s], VLLM_BOUNDS),
        histogram(
            f"vllm:{'time_per_output_token' if v0 else 'inter_token_latency'}_seconds",
            labels,
            work.gaps_s,
            TOKEN_BOUNDS,
        ),
        histogram("vllm:e2e_request_latency_seconds", labels, work.latencies_s, VLLM_BOUNDS),
    ]
    return "".join([*parts, metric_family("vllm:num_requests_swapped", "gauge", {labels: 1})] if v0 else parts)


def sglang(work: Work, *, ranks: int = 1, priorities: bool = False, old: bool = False) -> str:
    """`ranks` of one engine that each tell its gauges; with `priorities` a series for each and one for all."""
    common = f'engine_type="unified",model_name="{MODEL}"'
    running: dict[str, float] = {}
    for rank in range(ranks):
        labels = f'{common},pp_rank="0",tp_rank="{rank}"'
        if priorities:
            running[f'{labels},priority=""'] = work.active
            running[f'{labels},priority="10"'] = work.active
        else:
            running[labels] = work.active
    queued = {labels: float(work.queued) for labels in running if 'priority="10"' not in labels}
    return "".join(
        [
            metric_family("sglang:num_running_reqs", "gauge", running),
            metric_family("sglang:num_queue_reqs", "gauge", queued),
            metric_family("sglang:token_usage", "gauge", dict.fromkeys(running, work.cache)),
            metric_family("sglang:prompt_tokens_total", "counter", {common: work.tokens_in}),
            metric_family("sglang:generation_tokens_total", "counter", {common: work.tokens_out}),
            metric_family("sglang:num_requests_total", "counter", {common: len(work.latencies_s)}),
            metric_family("sglang:num_aborted_requests_total", "counter", {common: 3}),
            histogram("sglang:time_to_first_token_seconds", common, [s / 4 for s in work.latencies_s], SGLANG_BOUNDS),
            histogram(
                f"sglang:{'time_per_output_token' if old else 'inter_token_latency'}_seconds",
                common,
                work.gaps_s,
                TOKEN_BOUNDS,
            ),
            histogram("sglang:e2e_request_latency_seconds", common, work.latencies_s, SGLANG_BOUNDS),
        ]
    )


def tgi(work: Work, *, came_in: int) -> str:
    """Counters without a suffix, whole numbers, and none of what has not happened yet."""
    bounds = [round(0.1 * 1.5**i, 3) for i in range(20)]
    parts = [metric_family("tgi_queue_size", "gauge", {"": work.queued}, exact=True)]
    if came_in:
        parts += [
            metric_family("tgi_request_count", "counter", {"": came_in}, exact=True),
            metric_family("tgi_batch_current_size", "gauge", {"": work.active}, exact=True),
        ]
    if work.latencies_s:
        parts += [
            metric_family("tgi_request_success", "counter", {"": len(work.latencies_s)}, exact=True),
            histogram("tgi_batch_inference_duration", 'method="prefill"', [9.0], TOKEN_BOUNDS),
            histogram("tgi_batch_inference_duration", 'method="decode"', work.gaps_s, TOKEN_BOUNDS),
            histogram("tgi_request_duration", "", work.latencies_s, bounds),
            histogram("tgi_request_input_length", "", [work.tokens_in], [10.0, 1000.0]),
            histogram("tgi_request_generated_tokens", "", [work.tokens_out], [10.0, 1000.0]),
        ]
    if work.failed:
        failures = {'err="overloaded"': work.failed, 'err="dropped"': 2}
        parts.append(metric_family("tgi_request_failure", "counter", failures, exact=True))
    return "".join(parts)


def triton(work: Work, *, ensemble: bool = False, summaries: bool = False, tensorrt_llm: bool = False) -> str:
    """Every model of an ensemble counts what it takes part in; latencies are sums in microseconds."""
    models = ["chat", "preprocess", "decode"] if ensemble else ["chat"]
    each = [f'model="{model}",version="1"' for model in models]
    micro = [round(s * 1e6) for s in work.latencies_s]
    failures: dict[str, float] = {}
    for labels in each:
        failures |= {f'{labels},reason="{r}"': n for r, n in (("BACKEND", work.failed), ("CANCELED", 1), ("OTHER", 0))}
    parts = [
        metric_family("nv_inference_request_success", "counter", dict.fromkeys(each, len(micro)), exact=True),
        metric_family("nv_inference_request_failure", "counter", failures, exact=True),
        metric_family("nv_inference_request_duration_us", "counter", dict.fromkeys(each, sum(micro)), exact=True),
        metric_family("nv_inference_pending_request_count", "gauge", dict.fromkeys(each, work.queued), exact=True),
        metric_family("nv_gpu_utilization", "gauge", {'gpu_uuid="GPU-1"': 0.5}, exact=True),
    ]
    if summaries:
        name = "nv_inference_request_summary_us"
        lines = [f"# HELP {name} Summary of it.", f"# TYPE {name} summary"]
        for labels in each:
            lines += [f"{name}_count{{{labels}}} {len(micro)}", f"{name}_sum{{{labels}}} {sum(micro)}"]
            worst = max(micro) if micro else "Nan"
            lines += [f'{name}{{{labels},quantile="{q}"}} {worst}' for q in ("0.5", "0.9", "0.95", "0.99", "0.999")]
        parts.append("\n".join([*lines, ""]))
    if tensorrt_llm:
        reported = {"waiting": work.queued, "context": 1, "scheduled": work.active, "max": 512, "active": 9}
        kinds = {f'model="chat",request_type="{kind}",version="1"': n for kind, n in reported.items()}
        parts.append(metric_family("nv_trt_llm_request_metrics", "gauge", kinds, exact=True))
        blocks = {"max": 100, "used": 100 * work.cache, "tokens_per": 64, "fraction": work.cache}
        inside = {f'kv_cache_block_type="{kind}",model="chat",version="1"': n for kind, n in blocks.items()}
        parts.append(metric_family("nv_trt_llm_kv_cache_block_metrics", "gauge", inside, exact=True))
        firsts_ms = [250 * s for s in work.latencies_s]
        labels = 'model="chat",version="1"'
        parts.append(histogram("nv_inference_first_response_histogram_ms", labels, firsts_ms, [50.0, 100.0, 500.0]))
        for way, tokens in (("input", work.tokens_in), ("output", work.tokens_out)):
            labels = f'model="chat",response_metric_type="total_{way}_tokens",version="1"'
            parts.append(histogram(f"nv_llm_{way}_token_len", labels, [float(tokens)], [10.0, 50.0, 1000.0]))
    return "".join(parts)
