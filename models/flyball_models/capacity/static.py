"""Capacity of a transformer on a GPU, from its architecture alone: a roofline, its batch limited by memory and pace.

A decode step of b sequences reads the weights (of a mixture, those of the experts that b tokens reach) and the cached
keys and values once, or computes, whichever takes longer; a prompt is computed. With prompts of p and answers of o
tokens a replica of g GPUs serves, at batch b,

    X(b) = b / (o step(b) + b prefill)    requests per second,    pace(b) = step(b) + b prefill / o

seconds from token to token (Williams, Waterman and Patterson, "Roofline", CACM 2009; Pope et al., "Efficiently scaling
transformer inference", MLSys 2023). b is the largest batch that fits into memory, that the scheduler admits, and that
meets the pace of the objective.

Peaks are never reached. Shares of them that serving engines get, MFU and MBU: Pope et al. report up to 76 % of peak
FLOP/s for large prompts, common figures for prefill are 40 to 60 %, and for decoding 60 to 80 % of peak bandwidth.
With these the estimates lie within a factor of two of the throughput that NVIDIA publishes for TensorRT-LLM; see the
tests.
"""

import math
from typing import NamedTuple

import numpy as np

from flyball_models.capacity.base import Floats
from flyball_models.capacity.gpus import Gpu

COMPUTE_SHARE, BANDWIDTH_SHARE = 0.5, 0.65
MEMORY_SHARE = 0.9
"""Share of the memory for weights and cache (the default of common engines)."""
STEP_OVERHEAD_S = 0.002
"""Kernel launches, sampling and scheduling of a decode step."""
PARALLEL_LOSS = 0.12
"""Loss per doubling of the GPUs of a replica."""


class Model(NamedTuple):
    """A decoder-only transformer; bytes are per number. ``experts`` is the number of experts, 1 when dense.

    ``active`` are the parameters that one token uses, all but those of the experts that it skips.
    """

    parameters: float
    active: float
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0
    experts: int = 1


class Traffic(NamedTuple):
    """A mean request, the engine's largest batch, and the objective's time from token to token (infinite: none)."""

    prompt_tokens: float
    answer_tokens: float
    most_at_once: float = 256.0
    token_s: float = math.inf


class Bound(NamedTuple):
    """Sustainable requests and answer tokens per second of a replica, its batch, and the limiting resource."""

    requests_per_s: float
    tokens_per_s: float
    batch: float
    limit: str


def kv_bytes_per_token(model: Model) -> float:
    """Bytes of keys and values that a token leaves in the cache."""
    return 2.0 * model.layers * model.kv_heads * model.head_size * model.kv_bytes


def flops_per_token(model: Model, context: float) -> float:
    """Floating-point operations of a token: 2 per active parameter, 4 per number in its heads and `context` token."""
    return 2.0 * model.active + 4.0 * model.layers * model.heads * model.head_size * context


def estimate(model: Model, gpu: Gpu, gpus: float, traffic: Traffic) -> Bound:
    """Return the capacity of a replica of `gpus` GPUs; all zero with limit ``memory`` when the model does not fit."""
    p, o = max(traffic.prompt_tokens, 1.0), max(traffic.answer_tokens, 1.0)
    share = gpus * (1.0 - PARALLEL_LOSS) ** math.log2(max(gpus, 1.0))
    peak = gpu.flops_8 if model.weight_bytes <= 1.0 else gpu.flops_16
    flops, bandwidth = COMPUTE_SHARE * peak * share, BANDWIDTH_SHARE * gpu.bandwidth_bytes_per_s * share
    free = MEMORY_SHARE * gpu.memory_bytes * gpus - model.parameters * model.weight_bytes
    context = p + o / 2.0
    fits = free / (kv_bytes_per_token(model) * context)
    most = min(fits, traffic.most_at_once)
    if fits < 1.0:
        return Bound(0.0, 0.0, 0.0, "memory")
    batch: Floats = np.geomspace(1.0, most, 128)
    reached = 1.0 - (1.0 - model.active / model.parameters) ** batch if model.experts > 1 else np.ones(len(batch))
    read = reached * model.parameters * model.weight_bytes + batch * kv_bytes_per_token(model) * context
    step = np.maximum(read / bandwidth, batch * flops_per_token(model, context) / flops) + STEP_OVERHEAD_S
    prefill = p * flops_per_token(model, p / 2.0) / flops
    token_s = step + batch * prefill / o
    kept = np.flatnonzero(token_s <= traffic.token_s)
    if not len(kept):
        return Bound(0.0, 0.0, 0.0, "pace")
    at = int(kept[-1])
    limit = "pace" if at < len(batch) - 1 else "memory" if fits <= traffic.most_at_once else "batch"
    served = float(batch[at] / (o * step[at] + batch[at] * prefill))
    return Bound(served, served * o, float(batch[at]), limit)
